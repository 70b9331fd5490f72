"""Accuracy and time of plans: predicted against counted tensor memory, and planning time.

    python -m benchmarks.plans [--settings 48] [--seed S] [--only train] [--quick] [--store]

Settings are random, from seeds that no formula was tuned on, and run by the workers' functions. Measured is the peak
of torch's allocator, *counted tensors*; `python -m benchmarks.memory` measures *process memory*.
`python -m benchmarks.estimate` prints each setting.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import estimate
from benchmarks.entry import run
from benchmarks.estimate import Outcome
from benchmarks.estimate_regress import RegressSetting, draw_regress, write_flights
from benchmarks.estimate_settings import draw_other, draw_tracin, draw_train
from benchmarks.measure import Line, quietness, store
from benchmarks.measure import table as as_table
from kgops.errors import KgopsError
from kgops.jobs.job import read_job
from kgops.planning import profiles
from kgops.planning.job_size import subject_of
from kgops.planning.planner import suggest
from kgops.planning.targets import find_targets

__all__ = ["main", "of_planning", "of_predictions"]

COMMAND = "python -m benchmarks.plans"
SETTINGS, QUICK = 48, 12
GPUS = ("t4", "h200", "a10")  # known by name: planning asks for no GPU that is there
ENTITIES, RELATIONS, TRIPLES = 14_541, 237, 60_000  # for planning: as wide as FB15k-237

_KINDS: dict[str, tuple[str, Callable[[int], Outcome]]] = {
    "train": ("training", lambda seed: estimate.compare_train(draw_train(random.Random(seed)), seed)),
    "tracin": ("TracIn", lambda seed: estimate.compare_tracin(draw_tracin(random.Random(seed)), seed)),
    "other": (
        "TracIn otherwise",  # in fewer bits, projected, filtered, from an index, validated
        lambda seed: estimate.compare_tracin(draw_other(random.Random(seed)), seed, "other"),
    ),
    "regress": ("regression", lambda seed: estimate.compare_regress(draw_regress(random.Random(seed)), seed)),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--settings", type=int, help=f"number of settings, equally many of each kind ({SETTINGS})"
    )
    parser.add_argument(
        "--seed", type=int, default=1_000_000, help="seed of the first setting; it grows by one"
    )
    parser.add_argument("--only", choices=[*_KINDS, "planning"], help="only this kind, or only planning")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} settings unless --settings says more")
    parser.add_argument("--store", action="store_true", help="keep the values in the home's database")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    count = args.settings or (QUICK if args.quick else SETTINGS)
    kinds = [args.only] if args.only in _KINDS else [] if args.only else list(_KINDS)
    print(quietness(), flush=True)
    lines = of_predictions(_outcomes(kinds, count, args.seed)) if kinds else []
    lines += [] if args.only in _KINDS else of_planning(3 if args.quick else 7)
    print(*as_table(lines), sep="\n")
    if args.store:
        words = [*(sys.argv[1:] if argv is None else argv)]
        store(lines, shlex.join([*COMMAND.split(), *words]))
    return int(any(line.reached is False for line in lines))


def _outcomes(kinds: Sequence[str], settings: int, seed: int) -> Iterator[Outcome]:
    """Outcomes of the kinds in turn, each also printed to stderr: a regression may take seconds."""
    for number in range(settings):
        one = _KINDS[kinds[number % len(kinds)]][1](seed + number)
        print(
            f"{number + 1} of {settings}: {one.kind}, {one.measured / 2**20:.1f} MiB, "
            f"predicted {100 * one.error:+.2f} %",
            file=sys.stderr,
            flush=True,
        )
        yield one


def of_predictions(outcomes: Iterator[Outcome]) -> list[Line]:
    """Prediction errors of each kind."""
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by_kind[one.kind].append(one)
    lines = []
    for kind, some in by_kind.items():
        of = _KINDS[kind][0]
        off = tuple(100 * abs(one.error) for one in some)
        near = tuple(100.0 if error <= 5 else 0.0 for error in off)
        under = tuple(max(0.0, -100 * one.error) for one in some)
        took = tuple(one.predict_us for one in some)
        share = sum(near) / len(near)
        lines += [
            Line(f"plans_{kind}_error", f"{of}: counted tensors, prediction error", "%", off, 1),
            Line(
                f"plans_{kind}_within",
                f"{of}: counted tensors, within 5 %",
                "%",
                near,
                95,
                share,
                at_least=True,
            ),
            Line(
                f"plans_{kind}_under", f"{of}: counted tensors, furthest too low", "%", under, 2, max(under)
            ),
            Line(f"plans_{kind}_us", f"{of}: a prediction takes", "µs", took),
        ]
    return lines


def of_planning(rounds: int) -> list[Line]:
    """CPU time of `kgops suggest`: fitting options, alternatives, largest batch."""
    with tempfile.TemporaryDirectory(prefix="kgops-bench-") as name:
        return [
            Line(f"plans_{workload}_ms", f"planning {what} takes", "ms", _planned(workload, job, rounds), 50)
            for workload, what, job in _jobs(Path(name))
        ]


def _jobs(folder: Path) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    draw = random.Random(1)
    path = folder / "train.txt"
    with path.open("w") as file:
        for _ in range(TRIPLES):
            head, relation = int(ENTITIES * draw.random() ** 2), int(RELATIONS * draw.random() ** 2)
            file.write(f"e{head}\tr{relation}\te{int(ENTITIES * draw.random())}\n")
    files = {"train": str(path), "test": str(path)}
    yield "train", "a training", files
    yield "pipeline", "a pipeline of training and TracIn", {"train": files, "tracin": {"max_triples": 64}}
    flights = folder / "flights"
    flights.mkdir()
    write_flights(RegressSetting(64, 64, 40, True, {}, {}), flights, 1)
    yield "regress", "a regression", {"data_directory": str(flights)}


def _planned(workload: str, table: Mapping[str, Any], rounds: int) -> tuple[float, ...]:
    job = read_job({"workload": workload, "profile": "auto", workload: table}, "a bench")
    subject = subject_of(profiles.apply(job))
    if isinstance(subject, str):
        raise KgopsError(subject)
    took = []
    for gpu in GPUS * rounds:
        target = find_targets(gpu)[0]
        begun = time.process_time()
        suggest(subject, target)
        took.append(1000 * (time.process_time() - begun))
    return tuple(took)


if __name__ == "__main__":
    run(main)
