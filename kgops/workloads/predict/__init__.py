"""The workload `predict`, as a console knows it."""
