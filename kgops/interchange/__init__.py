"""Interchange: export runs for other programs and homes, and import runs from them."""
