"""The test triples of a TracIn run, and the influences of training triples on each."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field

from storage.database import transaction
from storage.rows import fits, made


@dataclass(frozen=True, slots=True)
class Influence:
    test: int
    rank: int  # 1, 2, … proponents; -1, -2, … opponents
    head: str
    relation: str
    tail: str
    score: float


@dataclass(frozen=True, slots=True)
class TestTriple:
    """A test triple; `trouble` says why it has no scores, `found` are its strongest influences."""

    __test__ = False  # for pytest: no test, whatever its name

    test: int
    head: str
    relation: str
    tail: str
    candidates: int | None = None
    trouble: str | None = None
    found: tuple[Influence, ...] = ()
    names: dict[str, str] = field(default_factory=dict)  # label → readable name


def add(conn: sqlite3.Connection, run: int, traced: Iterable[TestTriple]) -> None:
    """Writes test triples and their influences; replaces those that a resumed run writes again."""
    with transaction(conn):
        for one in traced:
            conn.execute("DELETE FROM influence WHERE run = ? AND test = ?", (run, one.test))
            conn.execute(
                "INSERT OR REPLACE INTO test_triple (run, test, head, relation, tail, candidates, trouble)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run, one.test, one.head, one.relation, one.tail, one.candidates, one.trouble),
            )
            conn.executemany(
                "INSERT OR REPLACE INTO influence (run, test, rank, head, relation, tail, score)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                ((run, i.test, i.rank, i.head, i.relation, i.tail, i.score) for i in one.found),
            )
            conn.executemany(
                "INSERT OR REPLACE INTO readable (run, label, name) VALUES (?, ?, ?)",
                ((run, label, name) for label, name in one.names.items()),
            )


def tests_of(conn: sqlite3.Connection, run: int) -> list[TestTriple]:
    """The run's test triples in order, without their influences."""
    rows = conn.execute(
        "SELECT test, head, relation, tail, candidates, trouble FROM test_triple WHERE run = ? ORDER BY test",
        (run,),
    )
    return made(TestTriple, rows)


def has_tests(conn: sqlite3.Connection, run: int) -> bool:
    return conn.execute("SELECT 1 FROM test_triple WHERE run = ? LIMIT 1", (run,)).fetchone() is not None


def of_test(conn: sqlite3.Connection, run: int, test: int) -> list[Influence]:
    """The influences on a test triple: strongest proponent first, strongest opponent last."""
    rows = conn.execute(
        "SELECT test, rank, head, relation, tail, score"
        " FROM influence WHERE run = ? AND test = ? ORDER BY score DESC, rank",
        (run, test),
    )
    return made(Influence, rows)


def names(conn: sqlite3.Connection, run: int) -> dict[str, str]:
    """Readable names of labels in the run's triples, where known."""
    rows = conn.execute("SELECT label, name FROM readable WHERE run = ?", (run,))
    return dict(pair for pair in rows if fits(pair, ("str", "str")))
