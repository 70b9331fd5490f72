"""SQL conditions of filters."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from storage import search, series
from storage.filters import FIELDS, NONE, Term
from storage.search import Condition


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
    return Condition("run", "id", clause, tuple(values), term.negated)


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
