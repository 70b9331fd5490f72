"""Tour: a home filled for looking around, with sample data that says so and a few real runs."""

SAMPLE = "sample data of the tour"
SAMPLE_TAG = "sample"
MARK = "(sample)"  # behind the label of each run
