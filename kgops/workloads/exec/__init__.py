"""Any command as a run."""
