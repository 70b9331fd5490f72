"""Benchmarks of kgops and its competitors. Not installed: run `python -m benchmarks` in a checkout."""
