"""Export a run with all its rows from a database, and import it into this or another one.

Tables and columns are read from the schema, so that migrations need no change here.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from storage import runs, search, series
from storage.conditions import read_snapshot
from storage.database import transaction
from storage.rows import json_table
from storage.runs import ENDED, next_number

# Tables with rows of a run, beside its series, and the columns that their rows are ordered by.
TABLES = {
    "attempt": "number",
    "option": "attempt, name",
    "metric": "name",
    "event": "id",
    "artifact": "path",
    "tag": "tag",
    "note": "id",
    "test_triple": "test",
    "influence": "test, rank",
    "readable": "label",
}
JSON_COLUMNS = frozenset({"settings", "body", "job", "plan", "environment"})
_COUNTED = ("event", "note")  # their ids belong to this database and are not exported


class Column(NamedTuple):
    name: str
    type: str  # INTEGER, REAL or TEXT: tables are STRICT
    required: bool
    is_json: bool


class Curve(NamedTuple):
    """All points of one series, in order of arrival."""

    name: str
    steps: Sequence[float]
    values: Sequence[float | None]
    times: Sequence[float]


class Rows(NamedTuple):
    """A whole run as plain values; JSON columns are decoded."""

    run: dict[str, Any]
    spec: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]]
    curves: Sequence[Curve]


def columns(conn: sqlite3.Connection, table: str) -> tuple[Column, ...]:
    """The columns of `run`, `run_spec` or one of TABLES, without references and ids of this database."""
    excluded = {row[0] for row in conn.execute('SELECT "from" FROM pragma_foreign_key_list(?)', (table,))}
    excluded |= {"id"} if table in _COUNTED else set()
    rows = conn.execute('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (table,))
    return tuple(
        Column(name, kind, bool(required or key), name in JSON_COLUMNS)
        for name, kind, required, key in rows
        if name not in excluded
    )


def read_rows(conn: sqlite3.Connection, number: int) -> Rows | None:
    """All rows of a run, read in one transaction; None where there is no such run."""
    with read_snapshot(conn):
        run_rows = list(_rows(conn, "run", "id = ?", "id", number))
        if not run_rows:
            return None
        spec = runs.spec(conn, number)._asdict()
        tables = {
            table: list(_rows(conn, table, "run = ?", order, number)) for table, order in TABLES.items()
        }
        names = [one.name for one in series.of_run(conn, number)]
        return Rows(run_rows[0], spec, tables, [_curve(conn, number, name) for name in names])


def insert_rows(conn: sqlite3.Connection, rows: Rows, *, folder: str, number: int | None = None) -> int:
    """Inserts a run; returns its number. Joins the caller's transaction. Raises ValueError for inconsistent rows."""
    if rows.run["state"] not in ENDED:
        raise ValueError(f"a run that is {rows.run['state']} cannot be imported")
    with transaction(conn), row_errors():
        given = next_number(conn) if number is None else number
        _insert(conn, "run", [{**rows.run, "id": given, "folder": folder}])
        _insert(conn, "run_spec", [rows.spec], run=given)
        conn.execute("INSERT INTO intake (run) VALUES (?)", (given,))
        for table, table_rows in rows.tables.items():
            _insert(conn, table, table_rows, run=given)
        for curve in rows.curves:
            points = zip(curve.steps, curve.values, curve.times, strict=True)
            series.append(conn, given, [series.Point(curve.name, *point) for point in points])
        runs.remember_gpus(conn, rows.spec["environment"].get("gpus"))
        search.index(conn, given)
        series.settle(conn, given)
    return given


def same_submission(conn: sqlite3.Connection, at: float, workload: str, label: str) -> list[int]:
    """Runs with this submission time, workload and label: the same run, or copies of it."""
    matches = conn.execute(
        "SELECT id FROM run WHERE submitted_at = ? AND workload = ? AND label = ? ORDER BY id",
        (at, workload, label),
    )
    return [row[0] for row in matches]


def with_digest(conn: sqlite3.Connection, kind: str, digest: str) -> list[int]:
    """Runs with an event of this kind whose body has this digest."""
    matches = conn.execute(
        "SELECT DISTINCT run FROM event WHERE kind = ? AND json_valid(body)"
        " AND json_extract(body, '$.digest') = ? ORDER BY run",
        (kind, digest),
    )
    return [row[0] for row in matches]


@contextmanager
def row_errors() -> Iterator[None]:
    """Raises ValueError for values that a row cannot hold, and for rows that contradict each other."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise ValueError(f"its rows contradict the database or each other: {error}") from error
    except (sqlite3.InterfaceError, sqlite3.ProgrammingError, OverflowError) as error:
        raise ValueError(f"a value does not fit its column: {error}") from error


def _rows(
    conn: sqlite3.Connection, table: str, where: str, order: str, number: int
) -> Iterator[dict[str, Any]]:
    known = columns(conn, table)
    listed = ", ".join(column.name for column in known)
    for row in conn.execute(f"SELECT {listed} FROM {table} WHERE {where} ORDER BY {order}", (number,)):
        yield {
            column.name: json_table(value) if column.is_json else value
            for column, value in zip(known, row, strict=True)
        }


def _curve(conn: sqlite3.Connection, number: int, name: str) -> Curve:
    points = series.points(conn, number, name)
    return Curve(name, [p.step for p in points], [p.value for p in points], [p.at for p in points])


def _insert(
    conn: sqlite3.Connection, table: str, rows: Sequence[Mapping[str, Any]], *, run: int | None = None
) -> None:
    known = columns(conn, table)
    names = [column.name for column in known] + (["run"] if run is not None else [])
    marks = ", ".join("?" * len(names))
    statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"
    for row in rows:
        values = [json.dumps(row[column.name]) if column.is_json else row[column.name] for column in known]
        conn.execute(statement, values if run is None else [*values, run])
