"""Sizes of a graph, counted before a run."""
