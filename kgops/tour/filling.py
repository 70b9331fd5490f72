"""Creates a tour: runs and benchmarks of `sample.json` are imported, real runs are launched through the queue."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from kgops.interchange.importing import TOUR
from kgops.jobs.files import write_json
from kgops.planning.plan_job import plan
from kgops.planning.resolve import resolve
from kgops.planning.start import launch
from kgops.settings import Home, make_home
from kgops.supervisor.control import wait_for_end
from kgops.supervisor.environment import temporary_variables
from kgops.supervisor.import_record import origin, put_record
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.run_json import IMPORTED, read_runs
from kgops.tour import MARK, SAMPLE, SAMPLE_TAG
from kgops.tour import home as homes
from kgops.workloads.job_files import read_job
from storage import benches, reports, runs
from storage.benches import Pair
from storage.database import Connection, open_writer
from storage.runs import Run

REAL_TAG = "real"
REAL: tuple[dict[str, Any], ...] = (  # jobs that really run, each on one core
    {
        "workload": "pipeline",
        "label": "nations, trained and traced",
        "pipeline": {
            "train": {"dataset": "nations", "num_epochs": 12},
            "tracin": {"max_triples": 10, "top_k": 10},
        },
    },
    {
        "workload": "train",
        "label": "nations with batches of 64",
        "train": {"dataset": "nations", "num_epochs": 12},
        "options": {"batch_size": 64},
    },
)
_LIVE_MINUTES = 15
# Columns whose times are relative to the creation of the tour, in seconds.
_TIMES = {
    "run": ("submitted_at", "started_at", "ended_at", "reported_at"),
    "attempt": ("started_at", "ended_at"),
    **dict.fromkeys(("event", "note", "artifact"), ("at",)),
}


@dataclass(frozen=True, slots=True)
class Tour:
    """The tour's runs: sample data, real ones, the one running now, and those waiting for it."""

    sample: tuple[int, ...]
    real: tuple[Run, ...]
    running: int
    waiting: tuple[int, ...]


def fill(home: Home, tell: Callable[[str], None], real: Sequence[dict[str, Any]]) -> Tour:
    """Creates the tour. Raises Usage where the home is in use."""
    homes.begin(home)
    make_home(home)
    with closing(open_writer(home.database)) as conn:
        tell("Writing sample data: runs of the last six weeks and three benchmarks …")
        sample = put_sample(home, conn)
        really = _run_really(home, conn, real, tell) if real else ()
        tell(
            f"Starting a run that reports a sample curve for {_LIVE_MINUTES} minutes, and two that wait for it …"
        )
        running, *waiting = _start_live(home, conn)
    homes.finish(home)
    return Tour(tuple(sample), really, running, tuple(waiting))


def _run_really(
    home: Home, conn: Connection, jobs: Sequence[dict[str, Any]], tell: Callable[[str], None]
) -> tuple[Run, ...]:
    """Runs both jobs at once, each on one core, to stay below a minute."""
    tell(f"Running for real, about half a minute: {'; '.join(job['label'] for job in jobs)} …")
    with temporary_variables({"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}):
        numbers = [_launch(home, conn, job, REAL_TAG) for job in jobs]
    ended = []
    for number in numbers:
        reports.add_note(
            conn, number, time.time(), "A real run on this machine, made while the tour was created."
        )
        ended.append(wait_for_end(home, conn, number))
        tell(f"  run {number} {ended[-1].state}")
    return tuple(ended)


def _start_live(home: Home, conn: Connection) -> Iterator[int]:
    words = [sys.executable, "-P", "-m", "kgops.tour.home"]
    for label, minutes, alone in (
        ("a curve to watch", _LIVE_MINUTES, False),
        ("wants all cores", 2, True),
        ("waits behind it", 1, False),
    ):
        job = {
            "workload": "exec",
            "label": f"{label} {MARK}",
            "exec": {"command": [*words, str(minutes)], "cwd": str(home.path)},
            "gpu": {"exclusive": alone},
            "limits": {"grace_s": 2.0},
        }
        number = _launch(home, conn, job, SAMPLE_TAG)
        now, run = time.time(), runs.get(conn, number)
        assert run is not None
        # Also in its folder, which can be imported without the database.
        write_json(RunFolder(home.runs / run.folder).origins, [{"at": now, "body": mark()}])
        reports.add_event(conn, number, 0, now, IMPORTED, mark())
        reports.add_note(conn, number, now, "A real process that reports a sample curve: nothing is trained.")
        yield number


def _launch(home: Home, conn: Connection, job: dict[str, Any], tag: str) -> int:
    with temporary_variables({"KGOPS_HOME": str(home.path)}):
        number = launch(home, conn, plan(resolve(read_job(job, "a job of the tour")), home, conn))
    reports.change_tags(conn, number, add=[homes.TAG, tag], remove=[])
    return number


def put_sample(home: Home, conn: Connection) -> list[int]:
    """Imports the sample runs and benchmarks; returns the run numbers, oldest first."""
    now, sample = time.time(), _sample()
    numbers: dict[int, int] = {}
    for table in sample["runs"]:
        texts, number = table.pop("files"), table["run"]["id"]
        table.setdefault("environment", sample["environment"])
        table["plan"].setdefault("choices", [_choice(option) for option in table["option"]])
        export = {"kgops_export": sample["kgops_export"], "runs": [_at(table, now)]}
        (rows,) = read_runs(conn, json.dumps(export).encode(), SAMPLE)
        numbers[number] = put_record(home, conn, rows, mark(), partial(_write_files, texts))
    put_benches(conn, numbers)
    return list(numbers.values())


def _choice(option: Mapping[str, Any]) -> dict[str, Any]:
    """As a plan has the option that a worker reported."""
    known = {key: option.get(key) for key in ("requested", "applied", "chosen_by", "reason")}
    return {"option": option["name"], **known}


def put_benches(conn: Connection, numbers: Mapping[int, int]) -> None:
    """Writes the sample benchmarks; `numbers` maps run numbers of the sample to those in the database."""
    for bench in _sample()["benches"]:
        _put_bench(conn, bench, numbers, time.time())


def _sample() -> dict[str, Any]:
    text = (files("kgops.tour") / "sample.json").read_text("utf-8")
    sample: dict[str, Any] = json.loads(text)
    return sample


def mark() -> dict[str, Any]:
    """The origin of a sample run."""
    return {**origin(TOUR, Path(SAMPLE)), "on": SAMPLE}


def _at(table: dict[str, Any], now: float) -> dict[str, Any]:
    for name, columns in _TIMES.items():
        for row in [table["run"]] if name == "run" else table[name]:
            row |= {column: now + row[column] for column in columns if row.get(column) is not None}
    for curve in table["series"]:
        curve["at"] = [now + at for at in curve["at"]]
        if curve["name"].endswith("_memory_mib"):  # sampled by the clock, as supervisors do
            curve["step"] = curve["at"]
    return table


def _write_files(texts: dict[str, str], folder: RunFolder) -> None:
    for path, text in texts.items():
        (folder.path / path).write_text(text)


def _put_bench(conn: Connection, sample: dict[str, Any], numbers: Mapping[int, int], now: float) -> None:
    number = benches.begin(
        conn, sample["name"], sample["plan"], sample["command"], sample["machine"], now + sample["begun"]
    )
    for pair in sample["pairs"]:
        runs = {name: numbers.get(pair[name]) for name in ("baseline_run", "variant_run")}
        sides = {side: _side(pair[side], sample["of"]) for side in ("baseline", "measured")}
        benches.add_pair(conn, number, Pair(**{**pair, **runs, **sides, "noted": (), "at": now + pair["at"]}))
    benches.end(conn, number, now + sample["ended"])


def _side(shortened: Mapping[str, Any], of: Mapping[str, str]) -> dict[str, Any]:
    """A result, with what all results of its benchmark are about."""
    measured = {**of, "took_s": shortened["seconds"]} if shortened["seconds"] is not None else {}
    return {**measured, **shortened}
