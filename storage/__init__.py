"""Storage: the SQLite database; the only package that contains SQL."""

PART_OF = "kgops"
