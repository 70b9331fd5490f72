"""`python -m benchmarks` lists the benchmark programs, `python -m benchmarks.NAME`."""

from __future__ import annotations

BENCHMARKS: dict[str, str] = {
    "train": "Training against PyKEEN: speed, memory, quality.",
    "recipes": "Test MRR and time of the recipes that ship with kgops.",
    "tracin": "TracIn against sequential and vectorised gradients.",
    "predict": "Answers to questions and all pairs of a relation, against PyKEEN's.",
    "explain": "Explanations by deletion and training again, beside baselines.",
    "regress": "Quality and time of each regression architecture.",
    "memory": "Predicted against measured process memory, on the CPU.",
    "screens": "Cost of the dashboard: CPU, memory, bytes sent, key latency.",
    "gpu": "All benchmarks that need a GPU.",
    "document": "Runs the quick set and writes BENCHMARKS.md.",
}


def listed() -> str:
    width = max(map(len, BENCHMARKS)) + 2
    lines = [f"  python -m benchmarks.{name:{width}}{what}" for name, what in BENCHMARKS.items()]
    return "\n".join(
        [
            "Benchmarks of kgops. `--help` lists the arguments of each; most know --quick, and --store to keep",
            "the values in the home. The exit code is 1 if a value misses its target.",
            "",
            *lines,
        ]
    )


if __name__ == "__main__":
    print(listed())
