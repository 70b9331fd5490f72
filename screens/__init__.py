"""Textual screens of `kgops tui`."""

PART_OF = "kgops"
