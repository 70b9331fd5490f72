"""Benchmarks of kgops. `--help` lists the arguments of each; some know --quick, most --store to keep
the values in the home. The exit code is 1 if a value misses its target.

  python -m benchmarks.train     Training against PyKEEN: speed, memory, quality.
  python -m benchmarks.recipes   Test MRR and time of the recipes that ship with kgops.
  python -m benchmarks.tracin    TracIn against sequential and vectorised gradients.
  python -m benchmarks.predict   Answers to questions and all pairs of a relation, against PyKEEN's.
  python -m benchmarks.explain   Explanations by deletion and training again, beside baselines.
  python -m benchmarks.regress   Quality and time of each regression architecture.
  python -m benchmarks.memory    Predicted against measured process memory, on the CPU.
  python -m benchmarks.screens   Cost of the dashboard: CPU, memory, bytes sent, key latency.
  python -m benchmarks.gpu       All benchmarks that need a GPU.
  python -m benchmarks.document  Runs the quick set and writes BENCHMARKS.md.
"""

if __name__ == "__main__":
    print(__doc__, end="")
