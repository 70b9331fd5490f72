"""Benchmarks: every figure kgops shows comes from one of these, run on the reader's own machine."""
