"""Runs: launched, supervised, recorded, queued, recovered, resumed. Standard library only."""
