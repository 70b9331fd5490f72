"""Events, options, artifacts, metrics, tags and notes of a run."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from storage import search
from storage.database import transaction
from storage.errors import RunGone
from storage.rows import fits, json_table, made, texts
from storage.schema import EVENTS, schema_error

GPU_MEMORY_BY = "gpu_memory_by"  # event of the supervisor: how it measured the run's share of a GPU's memory


@dataclass(frozen=True, slots=True)
class Event:
    attempt: int
    at: float
    kind: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Option:
    attempt: int
    name: str
    effect: str
    requested: str | None
    applied: str | None
    reason: str | None
    chosen_by: str | None


@dataclass(frozen=True, slots=True)
class Artifact:
    path: str
    kind: str
    sha256: str | None
    bytes: int | None
    at: float


@dataclass(frozen=True, slots=True)
class Note:
    id: int
    at: float
    text: str


def add_event(
    conn: sqlite3.Connection, run: int, attempt: int, at: float, kind: str, body: dict[str, Any]
) -> None:
    with transaction(conn):
        conn.execute(
            "INSERT INTO event (run, attempt, at, kind, body) VALUES (?, ?, ?, ?, ?)",
            (run, attempt, at, kind, json.dumps(body)),
        )


def events(conn: sqlite3.Connection, run: int, *, kinds: tuple[str, ...] = ()) -> list[Event]:
    marks = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
    rows = conn.execute(
        f"SELECT attempt, at, kind, body FROM event WHERE run = ?{marks} ORDER BY id", (run, *kinds)
    ).fetchall()
    return [
        event for event in _events(rows) if schema_error(event.body, EVENTS.get(event.kind, {}), "") is None
    ]


def _events(rows: list[Any]) -> list[Event]:
    return made(Event, [(*row, json_table(body)) for *row, body in rows])


def options(conn: sqlite3.Connection, run: int) -> list[Option]:
    """The options that each attempt reported, newest attempt last."""
    rows = conn.execute(
        "SELECT attempt, name, effect, requested, applied, reason, chosen_by FROM option"
        " WHERE run = ? ORDER BY attempt, name",
        (run,),
    )
    return made(Option, rows)


def artifacts(conn: sqlite3.Connection, run: int) -> list[Artifact]:
    rows = conn.execute(
        "SELECT path, kind, sha256, bytes, at FROM artifact WHERE run = ? ORDER BY path", (run,)
    )
    return made(Artifact, rows)


def write_options(conn: sqlite3.Connection, run: int, options: list[Option]) -> None:
    """Writes options of attempts; a later report replaces an earlier one."""
    conn.executemany(
        "INSERT OR REPLACE INTO option (run, attempt, name, effect, requested, applied, reason, chosen_by)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(run, r.attempt, r.name, r.effect, r.requested, r.applied, r.reason, r.chosen_by) for r in options],
    )


def write_artifacts(conn: sqlite3.Connection, run: int, artifacts: list[Artifact]) -> None:
    conn.executemany(
        "INSERT OR REPLACE INTO artifact (run, path, kind, sha256, bytes, at) VALUES (?, ?, ?, ?, ?, ?)",
        [(run, a.path, a.kind, a.sha256, a.bytes, a.at) for a in artifacts],
    )


def record_result(
    conn: sqlite3.Connection, run: int, files: list[Artifact], metrics: dict[str, float]
) -> None:
    """Writes the files and metrics of a valid result manifest."""
    with transaction(conn):
        write_artifacts(conn, run, files)
        conn.executemany(
            "INSERT OR REPLACE INTO metric (run, name, value) VALUES (?, ?, ?)",
            [(run, name, value) for name, value in metrics.items()],
        )


def metrics(conn: sqlite3.Connection, run: int) -> dict[str, float]:
    rows = conn.execute("SELECT name, value FROM metric WHERE run = ? ORDER BY name", (run,))
    return dict(pair for pair in rows if fits(pair, ("str", "float")))


def tags(conn: sqlite3.Connection, run: int) -> list[str]:
    return texts(conn.execute("SELECT tag FROM tag WHERE run = ? ORDER BY tag", (run,)))


def tags_of_runs(conn: sqlite3.Connection, runs: list[int]) -> dict[int, list[str]]:
    """Tags by run, for the rows of one page; runs without tags are left out."""
    marks = ", ".join("?" * len(runs))
    by_run: dict[int, list[str]] = {}
    for run, tag in conn.execute(f"SELECT run, tag FROM tag WHERE run IN ({marks}) ORDER BY run, tag", runs):
        by_run.setdefault(run, []).extend(texts([(tag,)]))
    return by_run


def known_tags(conn: sqlite3.Connection) -> list[str]:
    """All tags in use."""
    return texts(conn.execute("SELECT DISTINCT tag FROM tag ORDER BY tag"))


def change_tags(conn: sqlite3.Connection, run: int, *, add: list[str], remove: list[str]) -> None:
    with transaction(conn):
        _must_be_there(conn, run)
        conn.executemany(
            "INSERT INTO tag (run, tag) VALUES (?, ?) ON CONFLICT DO NOTHING", [(run, t) for t in add]
        )
        conn.executemany("DELETE FROM tag WHERE run = ? AND tag = ?", [(run, t) for t in remove])
        search.index(conn, run)


def notes(conn: sqlite3.Connection, run: int) -> list[Note]:
    return made(Note, conn.execute("SELECT id, at, text FROM note WHERE run = ? ORDER BY id", (run,)))


def add_note(conn: sqlite3.Connection, run: int, at: float, text: str) -> None:
    with transaction(conn):
        _must_be_there(conn, run)
        conn.execute("INSERT INTO note (run, at, text) VALUES (?, ?, ?)", (run, at, text))
        search.index(conn, run)


def _must_be_there(conn: sqlite3.Connection, run: int) -> None:
    """Raises RunGone inside the transaction, where another process has deleted the run since it was read."""
    if conn.execute("SELECT 1 FROM run WHERE id = ?", (run,)).fetchone() is None:
        raise RunGone(f"run {run} has just been deleted", "`kgops runs` lists all runs")
