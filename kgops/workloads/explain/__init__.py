"""The workload `explain`, as a console knows it."""
