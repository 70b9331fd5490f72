"""Match all runs against a condition as a byte mask; masks of a hundred thousand runs combine quickly."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import NamedTuple

from storage.database import explained
from storage.search import Condition

_BITS = bytes.maketrans(b"01", b"\x00\x01")


class AllRuns(NamedTuple):
    """The numbers of all runs, ascending; `mask` is 1 at each of them."""

    numbers: Sequence[int]
    mask: bytes


@contextmanager
def read_snapshot(conn: sqlite3.Connection) -> Iterator[None]:
    """A read transaction: all reads inside see one state of the database."""
    if conn.in_transaction:
        yield
        return
    with explained(None):
        conn.execute("BEGIN")
        try:
            yield
        finally:
            conn.execute("COMMIT")


def version(conn: sqlite3.Connection) -> tuple[int, int]:
    """Changes after any commit, by this connection or another."""
    seen: int = conn.execute("PRAGMA data_version").fetchone()[0]
    return seen, conn.total_changes


def all_runs(conn: sqlite3.Connection) -> AllRuns:
    count = conn.execute("SELECT count(*) FROM run").fetchone()[0]
    # Two statements: in one, SQLite reads all rows instead of both ends.
    least = conn.execute("SELECT min(id) FROM run").fetchone()[0] or 1
    most = conn.execute("SELECT max(id) FROM run").fetchone()[0] or 0
    if least == 1 and most == count:  # no run was deleted
        return AllRuns(range(1, count + 1), b"\x00" + b"\x01" * count)
    numbers = array("q", (row[0] for row in conn.execute("SELECT id FROM run NOT INDEXED ORDER BY id")))
    mask = bytearray(most + 1)
    for number in numbers:
        mask[number] = 1
    return AllRuns(numbers, bytes(mask))


def mask_of(conn: sqlite3.Connection, condition: Condition, known: AllRuns) -> bytes:
    """A mask that is 1 at each run that matches the condition, ignoring `negated`.

    Runs added since `known` was read are left out.
    """
    if condition.dense and (whole := _read_all(conn, condition, known)) is not None:
        return whole
    mask = bytearray(len(known.mask))
    statement = f"SELECT {condition.number} FROM {condition.source} WHERE {condition.clause}"
    last = len(mask) - 1
    for (number,) in conn.execute(statement, condition.values):
        if number <= last:
            mask[number] = 1
    return bytes(mask)


def _read_all(conn: sqlite3.Connection, condition: Condition, known: AllRuns) -> bytes | None:
    """The mask from one text with a character for each run: a row for each run would take twice as long."""
    # NOT INDEXED: in table order, which is the order of run numbers.
    statement = (
        f"SELECT group_concat(iif({condition.clause}, '1', '0'), '') FROM {condition.source} NOT INDEXED"
    )
    bits: bytes = (conn.execute(statement, condition.values).fetchone()[0] or "").encode().translate(_BITS)
    # Same count and same last number: numbers are never reused, so these are the same runs.
    last = conn.execute("SELECT max(id) FROM run").fetchone()[0] or 0
    if len(bits) != len(known.numbers) or last != len(known.mask) - 1:
        return None
    if isinstance(known.numbers, range):
        return b"\x00" + bits
    mask = bytearray(len(known.mask))
    for number in compress(known.numbers, bits):
        mask[number] = 1
    return bytes(mask)
