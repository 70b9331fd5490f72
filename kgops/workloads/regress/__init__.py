"""The workload `regress`, as a console knows it."""
