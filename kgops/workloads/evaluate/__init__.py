"""The workload `evaluate`, as a console knows it."""
