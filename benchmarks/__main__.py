"""`python -m benchmarks`: the benchmarks of kgops itself, each a program: `python -m benchmarks.NAME`."""

from __future__ import annotations

BENCHMARKS: dict[str, str] = {
    "train": "Training beside PyKEEN: speed, memory, quality.",
    "tracin": "TracIn beside sequential and vectorised gradients.",
    "evaluation": "Filtered evaluation beside PyKEEN's.",
    "regress": "Whether each architecture learns heights, and how long it takes.",
    "paths": "Neighbourhood filters beside enumeration.",
    "plans": "Predicted tensors beside counted ones, and planning's time.",
    "memory": "Predicted process memory beside measured, on the CPU.",
    "speed_order": "How well the planner orders settings by their speed.",
    "history": "A hundred thousand runs and a log of a million lines.",
    "console": "What the console and the supervisor cost.",
    "screens": "What the dashboard costs: CPU, memory, bytes, keys.",
    "scale_out": "A TracIn run over many processes and machines: measured, and simulated from it.",
    "engines": "Slurm and Ray beside processes of one machine.",
    "gpu": "All of it that needs a GPU.",
    "document": "The quick set of them, written to BENCHMARKS.md.",
}


def listed() -> str:
    width = max(map(len, BENCHMARKS)) + 2
    lines = [f"  python -m benchmarks.{name:{width}}{what}" for name, what in BENCHMARKS.items()]
    return "\n".join(
        [
            "Benchmarks of kgops itself. `--help` lists the arguments of each; most know --quick, and --store to keep",
            "the values in the database. The exit code is 1 if a value misses its target.",
            "",
            *lines,
        ]
    )


if __name__ == "__main__":
    print(listed())
