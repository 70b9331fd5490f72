"""Slurm: submits a run's worker, follows it, and reports it as if it ran here."""
