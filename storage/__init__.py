"""What is kept: the database, and all that knows SQL."""

PART_OF = "kgops"
