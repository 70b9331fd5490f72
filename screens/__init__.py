"""What is seen: the application and its screens."""

PART_OF = "kgops"
