"""The training triples a TracIn run found for each of its test triples."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from storage.database import transaction


@dataclass(frozen=True, slots=True)
class Influence:
    test: int
    rank: int  # 1, 2, … proponents; -1, -2, … opponents
    head: str
    relation: str
    tail: str
    score: float


def add(conn: sqlite3.Connection, run: int, found: Iterable[Influence]) -> None:
    """A resumed run writes a test triple again: the newer word replaces the older."""
    with transaction(conn):
        conn.executemany(
            "INSERT OR REPLACE INTO influence (run, test, rank, head, relation, tail, score)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            ((run, i.test, i.rank, i.head, i.relation, i.tail, i.score) for i in found),
        )


def of_test(conn: sqlite3.Connection, run: int, test: int) -> list[Influence]:
    """Strongest proponent first, strongest opponent last."""
    rows = conn.execute(
        "SELECT test, rank, head, relation, tail, score"
        " FROM influence WHERE run = ? AND test = ? ORDER BY score DESC, rank",
        (run, test),
    )
    return [Influence(*row) for row in rows]
