"""What the workers of the kill tests say of themselves, against what the record says of their runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from kgops.settings import Home
from kgops.supervisor import gate
from kgops.supervisor.run_folder import RunFolder
from storage import attempts, runs, series
from storage.database import Connection, open_reader


def is_closed(home: Home, run: int, number: int) -> bool:
    """Whether the record says how this attempt ended."""
    with closing(open_reader(home.database)) as conn:
        return all(a.outcome is not None for a in attempts.of_run(conn, run) if a.number == number)


def untruths(
    conn: Connection, home: Home, run: runs.Run, truth: Path, kills: int, *, was_asked: bool
) -> Iterator[str]:
    """`kills` hit the tree of the run's worker, which wrote into `truth`; `was_asked` means to stop."""
    folder = RunFolder(home.runs / run.folder)
    left = gate.read_exit(folder.attempt(folder.last_attempt())) if folder.last_attempt() else None
    if run.state == "succeeded" and not (truth / "finished").exists():
        yield f"run {run.id} is a false success"
    if left and left.code == 0 and not left.asked_to_stop and run.state != "succeeded":
        yield f"run {run.id} finished and is {run.state}: a result is missing"
    if run.state == "cancelled" and not was_asked:
        yield f"run {run.id} was never asked to stop and is cancelled"
    if run.state == "failed":
        yield f"run {run.id} failed: {run.reason}"
    if run.state == "interrupted" and not kills:
        yield f"run {run.id} is interrupted and nothing of its worker was killed"
    starts = (truth / "starts").read_text().splitlines() if (truth / "starts").exists() else []
    if len(starts) > 1 + kills:
        yield f"run {run.id} began {len(starts)} times; {kills} kills hit its worker"
    wanted = []
    if folder.events.exists():
        wanted = [json.loads(line)["value"] for line in folder.events.read_bytes().splitlines()]
    taken = [point.value for point in series.points(conn, run.id, "unit")]
    if taken != wanted:
        yield f"run {run.id} reported {len(wanted)} points, the database has {len(taken)}"
    if any(attempt.outcome is None for attempt in attempts.of_run(conn, run.id)):
        yield f"run {run.id} is {run.state} and an attempt of it goes on"
