"""Experiments: sweeps, paired comparisons, claims and their verdicts. Loads no torch."""
