"""SQL conditions of filters."""

from __future__ import annotations

import re
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import Any, NamedTuple

from storage import search, series
from storage.filters import FIELDS, NONE, Term
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


def compiled(conn: sqlite3.Connection, terms: Iterable[Term]) -> tuple[Condition, ...]:
    """The conditions of all terms, for run_list.Filter."""
    return tuple(of_term(conn, term) for term in terms)


def of_term(conn: sqlite3.Connection, term: Term) -> Condition:
    if term.kind == "words":
        return search.condition(conn, str(term.values[0]), negated=term.negated)
    if term.kind == "metric":
        return _of_metric(term)
    column = FIELDS[term.key].column
    if term.kind == "choice":
        clause, values = _one_of(column, term)
    elif term.kind == "contains":
        clause, values = _contains("text" if column == "note" else column, str(term.values[0]))
    elif term.kind == "gpu":
        clause, values = _on_gpu(str(term.values[0]), term.prefix)
    elif term.kind == "time":
        clause, values = f"{column} {'>=' if term.key == 'since' else '<'} ?", [*term.values]
    else:
        clause, values = _compared(column, term)
    if term.key in ("tag", "note"):
        if term.values == (NONE,):  # runs without any
            return Condition(term.key, "run", "1", (), not term.negated)
        return Condition(term.key, "run", clause, tuple(values), term.negated)
    # An index finds the few runs with one value; other conditions scan each run's row.
    indexed = term.kind == "choice" and term.key in ("state", "workload") and not term.prefix
    return Condition("run", "id", clause, tuple(values), term.negated, dense=not indexed)


def _one_of(column: str, term: Term) -> tuple[str, list[Any]]:
    clauses: list[str] = []
    values: list[Any] = []
    exact = []
    for i, value in enumerate(str(one) for one in term.values):
        if value == NONE and column != "tag":
            clauses.append(f"{column} IS NULL")
        elif value.endswith("*") or (term.prefix and i == len(term.values) - 1):
            stem = value.removesuffix("*")
            clauses.append(f"substr({column}, 1, ?) = ?")
            values += [len(stem), stem]
        else:
            exact.append(value)
    if exact:
        clauses.append(f"{column} IN ({', '.join('?' * len(exact))})")
        values += exact
    return " OR ".join(clauses), values


def _contains(column: str, text: str) -> tuple[str, list[Any]]:
    if text == NONE and column != "text":
        return f"{column} IS NULL", []
    return f"{column} LIKE ? ESCAPE '\\'", [f"%{search.escaped(text)}%"]


def _on_gpu(gpu: str, prefix: bool) -> tuple[str, list[Any]]:
    """Matches the GPU model by whole words (`t4` is not T400), the start of its UUID, or the requested GPU."""
    if gpu == NONE:
        return "run.gpu_request IS NULL AND run.gpu IS NULL", []
    words = search.escaped(" ".join(re.split(r"[\s-]+", gpu)))
    like = f"% {words}{'' if prefix else ' '}%"
    # The table of GPUs is small and read once; only runs on several GPUs are scanned for each of them.
    of_model = "SELECT uuid FROM gpu WHERE ' ' || replace(name, '-', ' ') || ' ' LIKE ? ESCAPE '\\'"
    of_several = f"instr(run.gpu, ',') AND EXISTS ({of_model} AND instr(run.gpu, uuid))"
    by_uuid = "length(?) > 4 AND instr(',' || run.gpu, ',' || ?)"
    return (
        f"run.gpu IN ({of_model}) OR run.gpu_request = ? OR ({of_several}) OR ({by_uuid})",
        [like, gpu, like, gpu, gpu],
    )


def _of_metric(term: Term) -> Condition:
    which, name = series.split(term.key)
    source, values = series.values_of(name, which)
    clause, bound = _compared("value", term)
    if term.values == (NONE,):  # no such metric, or NaN
        return Condition(f"({source})", "run", "value IS NOT NULL", (*values,), not term.negated)
    return Condition(f"({source})", "run", clause, (*values, *bound), term.negated)


def _compared(column: str, term: Term) -> tuple[str, list[Any]]:
    value = term.values[0]
    if isinstance(value, tuple):
        return f"{column} BETWEEN ? AND ?", list(value)
    if value == NONE:
        return f"{column} IS {'NOT ' * (term.op == '!=')}NULL", []
    if term.op not in ("<", "<=", ">", ">=", "=", "!="):
        raise ValueError(f"cannot compare by {term.op!r}")
    return f"{column} {term.op} ?", [value]
