"""Process memory on the CPU: what was predicted of forty varied jobs, beside what their processes took.

    python -m benchmarks.memory [--data DIR] [--jobs 1,2,9] [--of HOME] [--against HOME] [--keep HOME] [--store]

The jobs run one after the other in a home of their own, each as `kgops run` starts it; so the prediction of each is
learned from those before it alone. DIR has the folders fb15k-237, wn18rr, codex-s and hetionet-disease with train.txt,
valid.txt and test.txt; without it graphs of their sizes are drawn. Measured is the peak of the worker's process above
its start, by the kernel. `--of` judges a home that has run them before, `--against` also holds what was learned there
against the runs of another, as of one with other instruction sets. This is not the check of *counted tensors* against
torch's allocator: see `python -m benchmarks.plans`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.entry import run
from benchmarks.measure import Line, quietness, store
from benchmarks.measure import table as as_table
from benchmarks.memory_jobs import JOBS, table_of, write_data
from kgops.errors import KgopsError, Usage
from kgops.jobs.job import read_job
from kgops.planning.process_memory import Seen, learn_process
from kgops.supervisor.plan_job import process_sample
from storage import predictions
from storage.database import open_reader

__all__ = ["judged", "lines_of", "main"]

COMMAND = "python -m benchmarks.memory"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the real graphs")
    parser.add_argument("--jobs", help="numbers of jobs, from 1; those that a TracIn run needs come along")
    parser.add_argument("--keep", type=Path, help="a new home for the runs, which stays")
    parser.add_argument("--of", type=Path, help="judge the runs of this home, start none")
    parser.add_argument("--against", type=Path, help="another home, to hold what was learned against")
    parser.add_argument("--store", action="store_true", help="keep the values in the home's database")
    args = parser.parse_args(argv)
    print(quietness(), flush=True)
    with tempfile.TemporaryDirectory(prefix="kgops-bench-") as name:
        home = args.of or args.keep or Path(name) / "home"
        if args.of is None:
            _run_all(home.absolute(), Path(name) / "data", args.data, _wanted(args.jobs))
        lines = lines_of(home, args.against)
    print(*as_table(lines), sep="\n")
    if args.store:
        store(lines, shlex.join([*COMMAND.split(), *(sys.argv[1:] if argv is None else argv)]))
    return int(any(line.reached is False for line in lines))


def _wanted(numbers: str | None) -> list[int]:
    if numbers is None:
        return [*range(1, len(JOBS) + 1)]
    try:
        asked = {int(number) for number in numbers.split(",")}
        found = {JOBS[number - 1].of or number for number in asked} | asked
    except (ValueError, IndexError) as error:
        raise Usage(
            f"--jobs {numbers:.60} names no jobs", f"numbers from 1 to {len(JOBS)}, as in 1,4,9"
        ) from error
    return sorted(found)


def _run_all(home: Path, data: Path, real: Path | None, wanted: Sequence[int]) -> None:
    if home.exists():
        raise Usage(f"{home} is there already", "name a new folder, or judge it: --of")
    data.mkdir()
    write_data(data, real)
    trained: dict[int, int] = {}
    for number in wanted:
        file = data / f"{number}.toml"
        file.write_text(read_job(table_of(JOBS[number - 1], data, trained), "a bench").as_toml(), "utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "kgops", "run", str(file), "--json"],
            env={**os.environ, "KGOPS_HOME": str(home)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise KgopsError(f"job {number} failed: {done.stderr.strip()[-300:]}")
        told = json.loads(done.stdout)
        trained[number] = told["id"]
        print(f"{number} of {len(JOBS)}: {told['workload']} {told['label']}", file=sys.stderr, flush=True)


def _seen_in(home: Path) -> list[tuple[Seen, float]]:
    """In the order run: what was measured, and what had been shown of it before."""
    conn = open_reader(home / "kgops.db")
    try:
        told = [
            (process_sample(one), one.predicted_mib) for one in predictions.newest(conn) if not one.on_gpu
        ]
    finally:
        conn.close()
    return [(seen, shown) for seen, shown in reversed(told) if seen is not None and shown is not None]


def judged(home: Path, against: Path | None = None) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Ways to predict, each with its errors: below 0 where too little was predicted."""
    runs = _seen_in(home)
    if not runs:
        raise Usage(f"{home} has no run whose process was measured")
    seen = [one for one, _ in runs]
    yield "shown before each run", tuple(shown / one.above - 1 for one, shown in runs)
    yield "the bound alone, as before any run", tuple(_error(one, []) for one in seen)
    yield (
        "in the order run, by today's formula",
        tuple(_error(one, seen[:i][::-1]) for i, one in enumerate(seen)),
    )
    yield "each left out", tuple(_error(one, seen[:i] + seen[i + 1 :]) for i, one in enumerate(seen))
    if against is not None:
        others = [one for one, _ in _seen_in(against)]
        yield "learned here, of the other home", tuple(_error(one, seen) for one in others)
        yield "learned in the other, of this", tuple(_error(one, others) for one in seen)


def _error(one: Seen, taught: Sequence[Seen]) -> float:
    model = learn_process(one.kind, taught)
    return (model.constant_mib + model.factor * one.counted + one.data) / one.above - 1


def lines_of(home: Path, against: Path | None = None) -> list[Line]:
    """How far off each way is at the median, and how far too low at the worst."""
    lines = []
    for number, (way, errors) in enumerate(judged(home, against)):
        off = tuple(100 * abs(error) for error in errors)
        under = tuple(max(0.0, -100 * error) for error in errors)
        goal = None if number == 1 else 15.0
        lines += [
            Line(f"memory_{number}_error", f"{way}: off by", "%", off, goal),
            Line(f"memory_{number}_under", f"{way}: furthest too low", "%", under, 10, max(under)),
            Line(f"memory_{number}_over", f"{way}: furthest too high", "%", off, None, 100 * max(errors)),
        ]
    return lines


if __name__ == "__main__":
    run(main)
