"""Regression quality: R² and time of the small model with each architecture, on synthetic flights.

    python -m benchmarks.regress [--quick] [--store]

The runs use a temporary home, one after the other. R² is that of a held-out flight; predicting the mean height of the
training flights gives 0.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import Line, arguments, ended_run, finish, quietness, run
from kgops.maths.regress.made_flights import Sky, make_flights

ARCHITECTURES = ("transformer", "gnn", "ssm", "cnn")
LEAST_R2, MOST_S = 0.8, 120.0
# The shipped configuration warms up for 2,000 steps and trains for 50 epochs, as a real project's flights ask for.
BRIEF = {
    "temporal_frames": 2,
    "epochs": 9,
    "learning_rate": 0.003,
    "scheduler": "cosine",
    "warmup_steps": 20,
    "overweight_factor": 1,
}


@dataclass(frozen=True)
class Setting:
    flights: int = 12
    frames: int = 128
    seeds: int = 3


def main(argv: list[str] | None = None) -> int:
    parser = arguments("regress", __doc__)
    parser.add_argument("--quick", action="store_true", help="one seed instead of three")
    args = parser.parse_args(argv)
    print(quietness(), flush=True)
    with tempfile.TemporaryDirectory(prefix="kgops-bench-") as base:
        lines = list(measure(Path(base), ARCHITECTURES, Setting(seeds=1 if args.quick else 3)))
    return finish(lines, keep=args.store)


def measure(base: Path, architectures: Sequence[str], setting: Setting) -> Iterator[Line]:
    make_flights(base / "flights", setting.flights, Sky(setting.frames))
    for name in architectures:
        ended = [_run(base, name, seed) for seed in range(setting.seeds)]
        r2 = tuple(one["metric"]["test_r2"] for one in ended)
        took = tuple(one["ended_at"] - one["started_at"] for one in ended)
        what = f"small model, {name}"
        yield Line(
            f"regress_r2_{name}", f"{what}: R² of the flight held out", "", r2, LEAST_R2, at_least=True
        )
        yield Line(f"regress_s_{name}", f"{what}: from start to end", "s", took, MOST_S)


def _run(base: Path, architecture: str, seed: int) -> dict[str, Any]:
    given = {"data_directory": base / "flights", "architecture_name": architecture, "seed": seed}
    flags = {**given, **BRIEF}
    words = ["--config", "colab_optimized", "--no-pretrain", "--device", "cpu"]
    words += [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    ended = ended_run(base / "home", "regress", *words)
    print(f"{architecture}, seed {seed}: R² {ended['metric']['test_r2']:.3f}", flush=True)
    return ended


if __name__ == "__main__":
    run(main)
