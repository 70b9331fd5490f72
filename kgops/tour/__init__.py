"""`kgops demo --tour`: fills a home with sample data, marked as such, and a few real runs."""

SAMPLE = "sample data of the tour"
SAMPLE_TAG = "sample"
MARK = "(sample)"  # behind the label of each run
