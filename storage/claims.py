"""Claims: numbers from documents, stored beside the measurements that confirm or refute them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from storage.database import transaction


@dataclass(frozen=True, slots=True)
class Claim:
    """`low` and `high` are the claimed range in `unit`; None where the claim has no number."""

    name: str
    said_by: str
    source: str
    text: str
    low: float | None
    high: float | None
    unit: str


def keep(conn: sqlite3.Connection, claims: Iterable[Claim]) -> None:
    """Adds or updates claims; claims that are not given stay."""
    with transaction(conn):
        conn.executemany(
            "INSERT INTO claim (name, said_by, source, text, low, high, unit) VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE SET said_by = excluded.said_by, source = excluded.source,"
            " text = excluded.text, low = excluded.low, high = excluded.high, unit = excluded.unit",
            [astuple(claim) for claim in claims],
        )


def everything(conn: sqlite3.Connection) -> list[Claim]:
    rows = conn.execute("SELECT name, said_by, source, text, low, high, unit FROM claim ORDER BY name")
    return [Claim(*row) for row in rows]
