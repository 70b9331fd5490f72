"""Finds rows that cannot be read: text that is no UTF-8, values of another type, damaged JSON, and missing rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from storage.rows import json_value
from storage.transfer import JSON_COLUMNS

# They have no text, and a damaged number looks like another one.
_WITHOUT_TEXT = ("point", "rollup")
_JSON = JSON_COLUMNS | {"baseline", "measured", "noted"}
_TYPES: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "REAL": (float, int), "TEXT": (bytes,)}


class UnreadableRow(NamedTuple):
    table: str
    row: str  # its key
    column: str
    problem: str
    run: int | None  # the run that it belongs to

    def __str__(self) -> str:
        return f"table {self.table}, row {self.row}, column {self.column}: {self.problem}"


def unreadable_rows(conn: sqlite3.Connection, *, thorough: bool, at_most: int = 100) -> list[UnreadableRow]:
    """The first rows that cannot be read, without points of curves. `thorough`: also what `integrity_problems` finds,
    which cannot name a row: values of another type and damaged JSON."""
    before = conn.text_factory
    try:
        conn.text_factory = bytes
        return list(islice(_unreadable(conn, thorough), at_most))
    finally:
        conn.text_factory = before


def _unreadable(conn: sqlite3.Connection, thorough: bool) -> Iterator[UnreadableRow]:
    for (name,) in conn.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%STRICT%'"
    ):
        table = name.decode("utf-8", "replace")
        if table not in _WITHOUT_TEXT:
            yield from _of_table(conn, table, thorough)
    rows = conn.execute("SELECT id FROM run WHERE id NOT IN (SELECT run FROM run_spec) ORDER BY id")
    yield from (UnreadableRow("run_spec", str(run), "job", "the row is missing", run) for (run,) in rows)


class _Column(NamedTuple):
    name: str
    types: tuple[type, ...]
    required: bool
    key: int


def _of_table(conn: sqlite3.Connection, table: str, thorough: bool) -> Iterator[UnreadableRow]:
    info = conn.execute('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (table,))
    columns = [
        _Column(name.decode(), _TYPES[kind.decode()], bool(required or key), key)
        for name, kind, required, key in info
    ]
    names = [column.name for column in columns]
    keys = [place for place, column in enumerate(columns) if column.key]
    owner = names.index("id" if table == "run" else "run") if table == "run" or "run" in names else None
    read = conn.execute(f"SELECT {', '.join(names)} FROM {table}")
    for row in iter(read.fetchone, None):
        if not thorough and _is_text(row):
            continue
        for column, value in zip(columns, row, strict=True):
            if (problem := _problem(column, value)) is not None:
                key = ", ".join(_shown(row[place]) for place in keys)
                run = row[owner] if owner is not None and isinstance(row[owner], int) else None
                yield UnreadableRow(table, key, column.name, problem, run)


def _is_text(row: Iterable[Any]) -> bool:
    try:
        b"\n".join([value for value in row if isinstance(value, bytes)]).decode()
    except UnicodeDecodeError:
        return False
    return True


def _problem(column: _Column, value: Any) -> str | None:
    if value is None:
        return "the value is missing" if column.required else None
    if not isinstance(value, column.types):
        return f"the value is no {_NAMES[column.types[0]]}"
    if not isinstance(value, bytes):
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return f"byte {error.start} of the text is damaged"
    return "the JSON is damaged" if column.name in _JSON and json_value(text) is None else None


_NAMES: dict[type, str] = {int: "whole number", float: "number", bytes: "text"}


def _shown(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
