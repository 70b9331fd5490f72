"""The workload `train`, as a console knows it."""
