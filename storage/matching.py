"""Which of all runs a condition holds for, as a byte for each: a hundred thousand of them are combined in no time."""

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


class Everyone(NamedTuple):
    """The numbers of all runs, ascending; `mask` has a 1 at each of them."""

    numbers: Sequence[int]
    mask: bytes


@contextmanager
def one_moment(conn: sqlite3.Connection) -> Iterator[None]:
    """What is read inside belongs together, whatever others commit meanwhile."""
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
    """Another one after any commit, by this connection or another."""
    seen: int = conn.execute("PRAGMA data_version").fetchone()[0]
    return seen, conn.total_changes


def everyone(conn: sqlite3.Connection) -> Everyone:
    count = conn.execute("SELECT count(*) FROM run").fetchone()[0]
    # Two statements: in one, SQLite reads all rows instead of both ends.
    least = conn.execute("SELECT min(id) FROM run").fetchone()[0] or 1
    most = conn.execute("SELECT max(id) FROM run").fetchone()[0] or 0
    if least == 1 and most == count:  # none was ever deleted
        return Everyone(range(1, count + 1), b"\x00" + b"\x01" * count)
    numbers = array("q", (row[0] for row in conn.execute("SELECT id FROM run NOT INDEXED ORDER BY id")))
    mask = bytearray(most + 1)
    for number in numbers:
        mask[number] = 1
    return Everyone(numbers, bytes(mask))


def mask_of(conn: sqlite3.Connection, condition: Condition, everybody: Everyone) -> bytes:
    """A 1 at the number of each run for which the condition holds, leaving aside whether it is negated.

    Runs that have come since `everybody` was read are left out.
    """
    if condition.dense and (whole := _read_all(conn, condition, everybody)) is not None:
        return whole
    mask = bytearray(len(everybody.mask))
    statement = f"SELECT {condition.number} FROM {condition.source} WHERE {condition.clause}"
    last = len(mask) - 1
    for (number,) in conn.execute(statement, condition.values):
        if number <= last:
            mask[number] = 1
    return bytes(mask)


def _read_all(conn: sqlite3.Connection, condition: Condition, everybody: Everyone) -> bytes | None:
    """One letter for each run in one text: handing over a row for each would take twice as long."""
    # NOT INDEXED: in the order of the table itself, which is that of the numbers.
    statement = (
        f"SELECT group_concat(iif({condition.clause}, '1', '0'), '') FROM {condition.source} NOT INDEXED"
    )
    bits: bytes = (conn.execute(statement, condition.values).fetchone()[0] or "").encode().translate(_BITS)
    # As many, and the same last one: a number is never given twice, so these are the same runs.
    last = conn.execute("SELECT max(id) FROM run").fetchone()[0] or 0
    if len(bits) != len(everybody.numbers) or last != len(everybody.mask) - 1:
        return None
    if isinstance(everybody.numbers, range):
        return b"\x00" + bits
    mask = bytearray(len(everybody.mask))
    for number in compress(everybody.numbers, bits):
        mask[number] = 1
    return bytes(mask)
