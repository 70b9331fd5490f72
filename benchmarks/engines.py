"""Overhead of a TracIn run on Ray or Slurm compared with local processes.

    python -m benchmarks.engines [--on ray|slurm] [--data DIR] [--folder SHARED] [--rounds 3]

Each run is a `kgops run tracin` command, interleaved with its local counterpart. Ray: a local cluster with two CPUs
against `--devices 2`, in few shards and in many. Slurm: the cluster that sbatch reaches; SHARED is a folder that its
nodes share with this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.entry import run
from benchmarks.measure import Line, quietness, table
from benchmarks.scale_bed import draw_graph
from benchmarks.spread import untrained

__all__ = ["main"]

BLOCK_S = 60.0  # length of a shard that overheads are compared with
_LOCAL = ("--device", "cpu")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--on", choices=("ray", "slurm"), help="only one of them")
    parser.add_argument(
        "--data", type=Path, help="folder with train.txt and test.txt; default: a random graph"
    )
    parser.add_argument("--folder", type=Path, help="working folder; for Slurm one that its nodes share")
    parser.add_argument("--tests", type=int, default=256)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    print(quietness(), flush=True)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        data = (args.data or draw_graph(folder, 5_000, 50, 60_000, args.tests)).absolute()
        untrained(folder / "model.pt", data, args.dim)
        setup = _Setup(folder, data)
        if args.on in (None, "ray"):
            lines += _ray(setup, args.tests, args.rounds)
        if args.on in (None, "slurm"):
            lines += _slurm(setup, args.tests, args.rounds)
    if lines:
        print("\n".join(table(lines)))
    return 0 if all(line.reached is not False for line in lines) else 1


@dataclass(frozen=True)
class Ran:
    seconds: float  # wall-clock time of the command
    ended_at: float
    events: list[dict[str, Any]]

    @property
    def noticed_s(self) -> float:
        """Seconds from the worker's last result to the end of the run."""
        return self.ended_at - max(float(e["at"]) for e in self.events if e["event"] == "result")

    @property
    def queued_s(self) -> float:
        """Seconds from the submission to Slurm to the worker's first event."""
        given = next(float(e["at"]) for e in self.events if "given to Slurm" in e.get("text", ""))
        return min(float(e["at"]) for e in self.events if e["event"] == "started") - given

    @property
    def shards(self) -> int:
        note = next(e["text"] for e in self.events if " pieces for " in e.get("text", ""))
        return int(note.split()[0].replace(",", ""))


@dataclass(frozen=True)
class _Setup:
    folder: Path
    data: Path

    def run(self, tests: int, *flags: str) -> Ran:
        """Runs in a temporary home, so that no run learns from another."""
        home = Path(tempfile.mkdtemp(dir=self.folder))
        command = [
            *(sys.executable, "-m", "kgops", "run", "tracin", "--model-path", str(self.folder / "model.pt")),
            *("--train", str(self.data / "train.txt"), "--test", str(self.data / "test.txt")),
            *(
                "--max-triples",
                str(tests),
                "--top-k",
                "100",
                "--loss",
                "one-to-n",
                "--learning-rate",
                "0.001",
            ),
            *flags,
        ]
        own = {"KGOPS_HOME": str(home), "OMP_NUM_THREADS": "1"}
        begun = time.perf_counter()
        done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
        seconds, ended_at = time.perf_counter() - begun, time.time()
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(flags)} ended with {done.returncode}: {done.stderr[-2000:]}")
        (log,) = home.glob("runs/*/events.jsonl")
        events = [json.loads(line) for line in log.read_text().splitlines()]
        shutil.rmtree(home)
        return Ran(seconds, ended_at, events)


def _ray(setup: _Setup, tests: int, rounds: int) -> list[Line]:
    """Few shards and many: fewer tests make more and shorter ones."""
    over: dict[int, list[float]] = {}
    for number in range(rounds):
        for count in (tests, max(1, tests // 4)):
            here = setup.run(count, *_LOCAL, "--devices", "2")
            by_ray = setup.run(count, *_LOCAL, "--on", "ray", "--tasks", "2")
            over.setdefault(by_ray.shards, []).append(by_ray.seconds - here.seconds)
            print(
                f"round {number + 1}, {by_ray.shards} shards: {here.seconds:.1f} s by two processes, "
                f"{by_ray.seconds:.1f} s by Ray",
                flush=True,
            )
    lines = []
    for shards, longer in sorted(over.items()):
        # Ray's overhead does not depend on the length of a shard, so it is compared with longer ones.
        shares = tuple(100 * seconds / (shards * BLOCK_S / 2) for seconds in longer)
        what = f"Ray against two processes, {shards} shards"
        lines += [
            Line("engines_ray_s", f"{what}: longer by", "s", tuple(longer)),
            Line("engines_ray_share", f"{what}: overhead with shards of {BLOCK_S:.0f} s", "%", shares, 10),
        ]
    return lines


def _slurm(setup: _Setup, tests: int, rounds: int) -> list[Line]:
    if shutil.which("sbatch") is None or subprocess.run(["sinfo"], capture_output=True).returncode != 0:
        print("Slurm: no cluster here")
        return []
    longer, queued, noticed = [], [], []
    for number in range(rounds):
        here = setup.run(tests, *_LOCAL)
        there = setup.run(tests, *_LOCAL, "--on", "slurm", "--cpus", "1")
        longer.append(there.seconds - here.seconds)
        queued.append(there.queued_s)
        noticed.append(there.noticed_s - here.noticed_s)
        print(f"round {number + 1}: {here.seconds:.1f} s here, {there.seconds:.1f} s by Slurm", flush=True)
    return [
        Line(
            "engines_slurm_job_s",
            "Slurm against a local process: a job takes longer by",
            "s",
            tuple(longer),
            15,
        ),
        Line(
            "engines_slurm_queued_s",
            "Slurm: from submission to the worker's first event, torch loaded",
            "s",
            tuple(queued),
        ),
        Line(
            "engines_slurm_noticed_s",
            "Slurm: from the worker's last result to the end, beyond a local run",
            "s",
            tuple(noticed),
        ),
    ]


if __name__ == "__main__":
    run(main)
