"""Benchmarks of kgops itself, beside its peers. Not installed: `python -m benchmarks` in a checkout."""
