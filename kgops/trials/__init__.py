"""Trials: the programs that the paired comparisons of claims run. Each is a process of its own."""
