"""Process memory on the CPU: predicted against measured for varied jobs.

    python -m benchmarks.memory [--data DIR] [--jobs 1,2,9] [--of HOME] [--keep HOME] [--store]

The jobs run one after the other with `kgops run` in a temporary home, so each prediction learns only from earlier
jobs. DIR has the folders fb15k-237, wn18rr, codex-s and hetionet-disease with train.txt, valid.txt and test.txt; the
default is random graphs of their sizes. Measured is the peak of the worker process above its start, by the kernel.
`--of` evaluates a home with earlier runs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.measure import Line, arguments, ended_run, finish, quietness, run
from benchmarks.memory_jobs import JOBS, table_of, write_data
from kgops.errors import Usage
from kgops.planning.plan_job import process_sample
from kgops.planning.process_memory import Seen, learn_process
from kgops.workloads.job_files import read_job
from kgops.workloads.registry import timed_by_epoch
from storage import predictions
from storage.database import open_reader


def main(argv: list[str] | None = None) -> int:
    parser = arguments("memory", __doc__)
    parser.add_argument("--data", type=Path, help="folder of the real graphs")
    parser.add_argument("--jobs", help="job numbers, from 1; the training that a TracIn run needs is added")
    parser.add_argument("--keep", type=Path, help="keep the runs in this new home")
    parser.add_argument("--of", type=Path, help="evaluate the runs of this home, start none")
    args = parser.parse_args(argv)
    print(quietness(), flush=True)
    with tempfile.TemporaryDirectory(prefix="kgops-bench-") as name:
        home = args.of or args.keep or Path(name) / "home"
        if args.of is None:
            _run_all(home.absolute(), Path(name) / "data", args.data, _wanted(args.jobs))
        lines = lines_of(home)
    return finish(lines, keep=args.store)


def _wanted(numbers: str | None) -> list[int]:
    if numbers is None:
        return [*range(1, len(JOBS) + 1)]
    try:
        requested = {int(number) for number in numbers.split(",")}
        needed = {JOBS[number - 1].of or number for number in requested} | requested
    except (ValueError, IndexError) as error:
        raise Usage(
            f"--jobs {numbers:.60} names no jobs", f"numbers from 1 to {len(JOBS)}, as in 1,4,9"
        ) from error
    return sorted(needed)


def _run_all(home: Path, data: Path, real: Path | None, wanted: Sequence[int]) -> None:
    if home.exists():
        raise Usage(f"{home} already exists", "name a new folder, or evaluate it with --of")
    data.mkdir()
    write_data(data, real)
    trained: dict[int, int] = {}
    for number in wanted:
        file = data / f"{number}.toml"
        file.write_text(read_job(table_of(JOBS[number - 1], data, trained), "a bench").as_toml(), "utf-8")
        record = ended_run(home, str(file))
        trained[number] = record["id"]
        print(f"{number} of {len(JOBS)}: {record['workload']} {record['label']}", file=sys.stderr, flush=True)


def judged(home: Path) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Prediction methods with their relative errors, negative if the prediction is too low."""
    with closing(open_reader(home / "kgops.db")) as conn:
        newest = [
            (process_sample(one), one.predicted_mib)
            for one in predictions.newest(conn, by_epoch=timed_by_epoch())
            if not one.on_gpu
        ]
    runs = [(seen, shown) for seen, shown in reversed(newest) if seen is not None and shown is not None]
    if not runs:
        raise Usage(f"{home} has no run whose process was measured")
    seen = [one for one, _ in runs]
    yield "shown before each run", tuple(shown / one.above - 1 for one, shown in runs)
    yield "the bound alone, as before any run", tuple(_error(one, []) for one in seen)
    yield "leave-one-out", tuple(_error(one, seen[:i] + seen[i + 1 :]) for i, one in enumerate(seen))


def _error(one: Seen, taught: Sequence[Seen]) -> float:
    model = learn_process(one.kind, taught)
    return (model.constant_mib + model.factor * one.counted + one.data) / one.above - 1


def lines_of(home: Path) -> list[Line]:
    """Median error and extremes of each prediction method."""
    lines = []
    for number, (method, errors) in enumerate(judged(home)):
        off = tuple(100 * abs(error) for error in errors)
        under = tuple(max(0.0, -100 * error) for error in errors)
        goal = None if number == 1 else 15.0
        lines += [
            Line(f"memory_{number}_error", f"{method}: error", "%", off, goal),
            Line(f"memory_{number}_under", f"{method}: furthest too low", "%", under, 10, max(under)),
            Line(f"memory_{number}_over", f"{method}: furthest too high", "%", off, None, 100 * max(errors)),
        ]
    return lines


if __name__ == "__main__":
    run(main)
