"""What it costs to have a TracIn run done by Ray or by Slurm instead of here.

    python -m benchmarks.engines [--on ray|slurm] [--data DIR] [--folder SHARED] [--rounds 3]

Each is `kgops run tracin` as a person types it, and takes turns with the same one here. Ray: a local one of two
CPUs beside `--devices 2`, in few pieces and in many. Slurm: whatever cluster sbatch reaches; SHARED is a folder
that its nodes share with this machine.
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

BLOCK_S = 60.0  # of a piece in what overheads are held against
_LOCAL = ("--device", "cpu")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--on", choices=("ray", "slurm"), help="one of them; otherwise both")
    parser.add_argument("--data", type=Path, help="folder with train.txt and test.txt; otherwise drawn")
    parser.add_argument("--folder", type=Path, help="to work in: for Slurm one that its nodes see")
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
        at = _Place(folder, data)
        if args.on in (None, "ray"):
            lines += _ray(at, args.tests, args.rounds)
        if args.on in (None, "slurm"):
            lines += _slurm(at, args.tests, args.rounds)
    if lines:
        print("\n".join(table(lines)))
    return 0 if all(line.reached is not False for line in lines) else 1


@dataclass(frozen=True)
class Ran:
    seconds: float  # as a person waits for it
    ended_at: float
    events: list[dict[str, Any]]

    @property
    def noticed_s(self) -> float:
        """From the last of what its worker found to its end."""
        return self.ended_at - max(float(e["at"]) for e in self.events if e["event"] == "result")

    @property
    def queued_s(self) -> float:
        """From giving it to Slurm to its worker's first word."""
        given = next(float(e["at"]) for e in self.events if "submitted to Slurm" in e.get("text", ""))
        return min(float(e["at"]) for e in self.events if e["event"] == "started") - given

    @property
    def pieces(self) -> int:
        note = next(e["text"] for e in self.events if " pieces for " in e.get("text", ""))
        return int(note.split()[0].replace(",", ""))


@dataclass(frozen=True)
class _Place:
    folder: Path
    data: Path

    def run(self, tests: int, *flags: str) -> Ran:
        """In a home of its own: nothing is kept, and no run learns from another."""
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
        (told,) = home.glob("runs/*/events.jsonl")
        events = [json.loads(line) for line in told.read_text().splitlines()]
        shutil.rmtree(home)
        return Ran(seconds, ended_at, events)


def _ray(at: _Place, tests: int, rounds: int) -> list[Line]:
    """In few pieces and in more: fewer tests make more and shorter ones."""
    over: dict[int, list[float]] = {}
    for number in range(rounds):
        for many in (tests, max(1, tests // 4)):
            here = at.run(many, *_LOCAL, "--devices", "2")
            by_ray = at.run(many, *_LOCAL, "--on", "ray", "--tasks", "2")
            over.setdefault(by_ray.pieces, []).append(by_ray.seconds - here.seconds)
            print(
                f"round {number + 1}, {by_ray.pieces} pieces: {here.seconds:.1f} s by two processes, "
                f"{by_ray.seconds:.1f} s by Ray",
                flush=True,
            )
    lines = []
    for pieces, longer in sorted(over.items()):
        # What Ray adds does not ask how long a piece takes, so it is held against longer ones.
        shares = tuple(100 * seconds / (pieces * BLOCK_S / 2) for seconds in longer)
        what = f"Ray beside two processes, {pieces} pieces"
        lines += [
            Line("engines_ray_s", f"{what}: longer by", "s", tuple(longer)),
            Line("engines_ray_share", f"{what}: of as many of {BLOCK_S:.0f} s", "%", shares, 10),
        ]
    return lines


def _slurm(at: _Place, tests: int, rounds: int) -> list[Line]:
    if shutil.which("sbatch") is None or subprocess.run(["sinfo"], capture_output=True).returncode != 0:
        print("Slurm: no cluster answers here")
        return []
    longer, queued, noticed = [], [], []
    for number in range(rounds):
        here = at.run(tests, *_LOCAL)
        there = at.run(tests, *_LOCAL, "--on", "slurm", "--cpus", "1")
        longer.append(there.seconds - here.seconds)
        queued.append(there.queued_s)
        noticed.append(there.noticed_s - here.noticed_s)
        print(f"round {number + 1}: {here.seconds:.1f} s here, {there.seconds:.1f} s by Slurm", flush=True)
    return [
        Line(
            "engines_slurm_job_s",
            "Slurm beside a process here: a job takes longer by",
            "s",
            tuple(longer),
            15,
        ),
        Line(
            "engines_slurm_queued_s",
            "from submitting to its worker's first word, which loads torch",
            "s",
            tuple(queued),
        ),
        Line(
            "engines_slurm_noticed_s", "and from its last to its end, beyond that here", "s", tuple(noticed)
        ),
    ]


if __name__ == "__main__":
    run(main)
