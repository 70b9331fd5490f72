"""Benchmark programs for the paired comparisons of claims; each runs as a separate process."""
