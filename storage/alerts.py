"""Alerts that were acknowledged, when the console was left, and the ended runs that alerts are about."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping

from storage import runs
from storage.database import transaction
from storage.runs import Run

_LEFT = "console left"  # no alert has this name: theirs have a colon
_HOOKED = "hook: "  # before the name of an alert that the hook was started for
_BAD = ("failed", "out_of_memory", "interrupted")
_MOST = 100
_KEPT_S = 90 * 86_400.0  # a mark that old is of an alert that nobody derives any more


def acknowledged(conn: sqlite3.Connection) -> frozenset[str]:
    return frozenset(name for (name,) in conn.execute("SELECT alert FROM acknowledged"))


def acknowledge(conn: sqlite3.Connection, alerts: Iterable[str]) -> None:
    now = time.time()
    with transaction(conn):
        conn.executemany(
            "INSERT INTO acknowledged (alert, at) VALUES (?, ?) ON CONFLICT (alert) DO UPDATE SET at = excluded.at",
            [(alert, now) for alert in alerts],
        )
        conn.execute(
            "DELETE FROM acknowledged WHERE at < ? AND alert != ? AND alert NOT LIKE '%:run %'",
            (now - _KEPT_S, _LEFT),
        )


def mark_hooked(conn: sqlite3.Connection, alert: str) -> bool:
    """Whether the hook is to be started for this alert: it is new, and nobody acknowledged it."""
    with transaction(conn):
        return bool(
            conn.execute(
                "INSERT INTO acknowledged (alert, at) SELECT ?, ?"
                " WHERE NOT EXISTS (SELECT 1 FROM acknowledged WHERE alert IN (?, ?))",
                (f"{_HOOKED}{alert}", time.time(), f"{_HOOKED}{alert}", alert),
            ).rowcount
        )


def left_at(conn: sqlite3.Connection) -> float | None:
    """When a console was left; None if none ever was."""
    row = conn.execute("SELECT at FROM acknowledged WHERE alert = ?", (_LEFT,)).fetchone()
    return None if row is None else float(row[0])


def leave(conn: sqlite3.Connection) -> None:
    acknowledge(conn, (_LEFT,))


def ended_since(conn: sqlite3.Connection, since: float) -> Mapping[str, int]:
    """How many runs ended since, by state."""
    marks = ", ".join("?" * len(runs.ENDED))
    rows = conn.execute(
        f"SELECT state, count(*) FROM run WHERE state IN ({marks}) AND ended_at > ? GROUP BY state",
        (*runs.ENDED, since),
    )
    return dict(rows.fetchall())


def ended_badly(conn: sqlite3.Connection) -> list[Run]:
    """Runs that failed, ran out of memory or were interrupted, newest first, without acknowledged ones."""
    numbers = [
        number
        for (number,) in conn.execute(
            "SELECT id FROM run WHERE state IN (?, ?, ?)"
            " AND NOT EXISTS (SELECT 1 FROM acknowledged"
            " WHERE alert = run.state || ':run ' || run.id || ':' || run.attempts)"
            " ORDER BY ended_at DESC LIMIT ?",
            (*_BAD, _MOST),
        )
    ]
    return [run for number in numbers if (run := runs.get(conn, number)) is not None]


def diverged(conn: sqlite3.Connection) -> dict[int, list[str]]:
    """Curves that became NaN or infinite, of runs that go on or ended well."""
    rows = conn.execute(
        "SELECT series.run, series.name FROM series JOIN run ON run.id = series.run"
        " WHERE series.n > 0 AND series.last_value IS NULL"
        " AND run.state NOT IN ('failed', 'out_of_memory', 'interrupted')"
        " ORDER BY series.run DESC, series.name LIMIT ?",
        (_MOST,),
    )
    found: dict[int, list[str]] = {}
    for run, name in rows:
        found.setdefault(run, []).append(name)
    return found
