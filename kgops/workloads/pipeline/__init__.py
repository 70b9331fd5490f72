"""The workload `pipeline`, as a console knows it."""
