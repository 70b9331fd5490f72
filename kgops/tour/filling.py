"""Creates a tour: sample runs are imported, real runs are launched through the queue."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kgops.jobs.files import write_json
from kgops.jobs.job import read_job
from kgops.planning.resolve import resolve
from kgops.settings import Home, make_home
from kgops.supervisor.control import wait_for_end
from kgops.supervisor.environment import temporary_variables
from kgops.supervisor.launch import launch
from kgops.supervisor.plan_job import plan
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.run_json import IMPORTED
from kgops.tour import MARK, SAMPLE_TAG
from kgops.tour import home as homes
from kgops.tour.sample import mark, put_sample
from storage import reports, runs
from storage.database import Connection, open_writer
from storage.runs import Run

__all__ = ["REAL", "Tour", "fill"]

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
    conn = open_writer(home.database)
    try:
        tell("Writing sample data: runs of the last six weeks and three benchmarks …")
        sample = put_sample(home, conn)
        really = _run_really(home, conn, real, tell) if real else ()
        tell(
            f"Starting a run that reports a sample curve for {_LIVE_MINUTES} minutes, and two that wait for it …"
        )
        running, *waiting = _start_live(home, conn)
    finally:
        conn.close()
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
