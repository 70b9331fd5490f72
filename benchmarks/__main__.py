"""`python -m benchmarks` lists the benchmark programs, `python -m benchmarks.NAME`."""

from __future__ import annotations

BENCHMARKS: dict[str, str] = {
    "train": "Training against PyKEEN: speed, memory, quality.",
    "time_to_mrr": "Time of training until a test MRR is reached, against PyKEEN's.",
    "recipes": "Test MRR and time of the recipes that ship with kgops.",
    "tracin": "TracIn against sequential and vectorised gradients.",
    "predict": "Answers to questions and all pairs of a relation, against PyKEEN's.",
    "explain": "Explanations by deletion and training again, beside baselines.",
    "evaluation": "Filtered evaluation against PyKEEN's.",
    "regress": "Quality and time of each regression architecture.",
    "graph_size": "Memory and time against the number of entities, to a million.",
    "plans": "Predicted against counted tensor memory, and planning time.",
    "memory": "Predicted against measured process memory, on the CPU.",
    "history": "History of 100,000 runs, and a log of a million lines.",
    "console": "Cost of the console and the supervisor.",
    "screens": "Cost of the dashboard: CPU, memory, bytes sent, key latency.",
    "hosts": "Cost of the screen over 20 hosts, and faults at random.",
    "scale_out": "TracIn over many processes and machines: measured and simulated.",
    "engines": "Slurm and Ray against local processes.",
    "gpu": "All benchmarks that need a GPU.",
    "document": "Runs the quick set and writes BENCHMARKS.md.",
}


def listed() -> str:
    width = max(map(len, BENCHMARKS)) + 2
    lines = [f"  python -m benchmarks.{name:{width}}{what}" for name, what in BENCHMARKS.items()]
    return "\n".join(
        [
            "Benchmarks of kgops. `--help` lists the arguments of each; most know --quick, and --store to keep",
            "the values in the database. The exit code is 1 if a value misses its target.",
            "",
            *lines,
        ]
    )


if __name__ == "__main__":
    print(listed())
