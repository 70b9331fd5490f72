"""The workload `tracin`, as a console knows it."""
