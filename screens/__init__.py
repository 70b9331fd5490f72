PART_OF = "kgops"
