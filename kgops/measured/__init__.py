"""What was measured, read back: pairs of runs, what they come to, and the verdicts on what was claimed."""
