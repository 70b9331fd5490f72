"""`kgops demo --tour`: fills a home with sample data, marked as such, and a few real runs."""
