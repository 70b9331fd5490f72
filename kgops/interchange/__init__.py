"""Interchange: runs written for other programs and homes, and runs read from them."""
