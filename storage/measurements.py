"""Figures kgops measured itself, each with all that is needed to repeat it."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, fields
from typing import Any

from storage.database import transaction


@dataclass(frozen=True, slots=True)
class Measurement:
    name: str
    subject: str
    against: str | None
    value: float
    low: float | None
    high: float | None
    n: int
    unit: str
    command: str
    fingerprint: dict[str, Any]
    at: float
    run: int | None = None


_COLUMNS = tuple(field.name for field in fields(Measurement))


def add(conn: sqlite3.Connection, m: Measurement) -> None:
    with transaction(conn):
        conn.execute(
            "INSERT INTO measurement (run, name, subject, against, value, low, high, n, unit, command, fingerprint, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(m.run, m.name, m.subject, m.against, m.value, m.low, m.high, m.n, m.unit, m.command),
                *(json.dumps(m.fingerprint, sort_keys=True), m.at),
            ),
        )


def named(conn: sqlite3.Connection, name: str) -> list[Measurement]:
    """Oldest first."""
    rows = conn.execute(f"SELECT {', '.join(_COLUMNS)} FROM measurement WHERE name = ? ORDER BY id", (name,))
    found = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    return [Measurement(**{**row, "fingerprint": json.loads(row["fingerprint"])}) for row in found]
