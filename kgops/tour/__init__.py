"""A home filled for looking around: histories that are made up and say so, and a few runs that really took place."""
