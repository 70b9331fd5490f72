"""Workloads: options, checks, sizes and applied options of each, and the registry. Loads no torch."""
