"""Exports a run to JSON and imports it again, lossless.

`{"kgops_export": 2, "runs": [{"run": {…}, "job": {…}, …, "series": [{"name", "step", "value", "at"}]}]}`: keys
are the database's tables and columns. JSON has no infinity: where a column holds one it is written as the text
"Infinity" or "-Infinity". A NaN that a worker reported is recorded as null.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from kgops import __version__
from kgops.errors import BadInput
from kgops.jobs.json_checks import parse
from kgops.jobs.numbers import finite_json
from kgops.jobs.run_options import must_be_free, written
from storage import transfer
from storage.database import Connection
from storage.runs import STATES
from storage.schema import Maybe, schema_error
from storage.transfer import Column, Curve, Rows

FORMAT = 2
IMPORTED = "imported"  # event kind that marks an imported run with its origin
_SPEC = ("job", "plan", "environment")
_CURVE = ("step", "value", "at")
_INFINITE = {"Infinity": math.inf, "-Infinity": -math.inf}


class NotAnExport(ValueError):
    """The text is not a valid export; the message says where and why."""


def write_runs(runs: Iterator[Rows]) -> Iterator[str]:
    """Text of an export file, a run at a time."""
    head = {"kgops_export": FORMAT, "kgops": __version__, "exported_at": time.time()}
    yield json.dumps(head)[:-1] + ', "runs": ['
    before = "\n"
    for rows in runs:
        table = _as_table(rows)
        try:
            yield before + json.dumps(table, allow_nan=False)
        except ValueError:  # it contains NaN or infinity
            yield before + json.dumps(finite_json(table))
        before = ",\n"
    yield "\n]}\n"


def write_json(runs: Iterator[Rows], target: Path, *, force: bool) -> None:
    """Writes the export atomically."""
    must_be_free(target, force=force)
    with written(target) as file:
        file.writelines(text.encode() for text in write_runs(runs))


def read_runs(conn: Connection, text: bytes, source: str) -> list[Rows]:
    """Every run of an export; BadInput names the file and the first invalid value."""
    export = parse(text, source, strictly=True)
    try:
        if not isinstance(export, dict) or "kgops_export" not in export:
            raise NotAnExport("it has no key `kgops_export`: this is not a kgops export")
        if export["kgops_export"] != FORMAT:
            raise NotAnExport(f"its format is {export['kgops_export']!r:.20}; this kgops reads {FORMAT}")
        return [_from_table(conn, table, f"runs[{i}]") for i, table in enumerate(_list(export, "runs", ""))]
    except NotAnExport as error:
        raise BadInput(f"{source}: {error}") from error


# --- written --------------------------------------------------------------------------------------


def _as_table(rows: Rows) -> dict[str, Any]:
    series = [
        {"name": curve.name, "step": [*curve.steps], "value": [*curve.values], "at": [*curve.times]}
        for curve in rows.curves
    ]
    return {"run": rows.run, **{name: rows.spec[name] for name in _SPEC}, **rows.tables, "series": series}


# --- read -----------------------------------------------------------------------------------------


def _from_table(conn: Connection, table: Any, where: str) -> Rows:
    if not isinstance(table, dict):
        raise NotAnExport(f"{where} is no table")
    _must_know(table, {"run", "series", *_SPEC, *transfer.TABLES}, where)
    run = _row(transfer.columns(conn, "run"), table.get("run"), f"{where}.run")
    if run["state"] not in STATES:
        raise NotAnExport(f"{where}.run.state: there is no state {run['state']!r:.40}")
    spec = _row(transfer.columns(conn, "run_spec"), {name: table.get(name) for name in _SPEC}, where)
    tables = {}
    for name in transfer.TABLES:
        columns = transfer.columns(conn, name)
        items = _list(table, name, f"{where}.")
        tables[name] = [_row(columns, row, f"{where}.{name}[{i}]") for i, row in enumerate(items)]
    curves = [
        _curve(one, f"{where}.series[{i}]") for i, one in enumerate(_list(table, "series", f"{where}."))
    ]
    return Rows(run, spec, tables, curves)


def _row(columns: Sequence[Column], row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise NotAnExport(f"{where} is no table")
    _must_know(row, {column.name for column in columns}, where)
    values = {column.name: row.get(column.name) for column in columns}
    infinite = {
        column.name: _INFINITE[value]
        for column in columns
        if column.type == "REAL" and isinstance(value := values[column.name], str) and value in _INFINITE
    }
    schema = {column.name: _schema(column) for column in columns}
    _fitting(values | dict.fromkeys(infinite, 0.0), schema, where)
    return values | infinite


def _schema(column: Column) -> Any:
    kind = {} if column.is_json else _KINDS[column.type]
    return kind if column.is_json or column.required else Maybe(kind)


_KINDS: dict[str, Any] = {"TEXT": str, "INTEGER": int, "REAL": float}


def _must_know(table: Mapping[str, Any], names: Set[str], where: str) -> None:
    if unknown := next((name for name in table if name not in names), None):
        raise NotAnExport(
            f"{where} has {unknown!r:.60}, which this kgops does not know: a newer one wrote it"
        )


def _real(value: Any, at: str) -> Any:
    """Of a curve, which may be too long to name the place of each of its values."""
    return _INFINITE[value] if isinstance(value, str) and value in _INFINITE else _fitting(value, float, at)


def _fitting(value: Any, schema: Any, at: str) -> Any:
    if (error := schema_error(value, schema, at)) is not None:
        raise NotAnExport(error)
    return value


def _curve(one: Any, where: str) -> Curve:
    if not isinstance(one, dict):
        raise NotAnExport(f"{where} is no table")
    steps, values, times = (_list(one, name, f"{where}.") for name in _CURVE)
    if not len(steps) == len(values) == len(times):
        raise NotAnExport(f"{where} has {len(steps)} steps, {len(values)} values and {len(times)} times")
    return Curve(
        _fitting(one.get("name"), str, f"{where}.name"),
        [_real(x, f"{where}.step") for x in steps],
        [None if x is None else _real(x, f"{where}.value") for x in values],
        [_real(x, f"{where}.at") for x in times],
    )


def _list(table: Mapping[str, Any], name: str, where: str) -> list[Any]:
    items = table.get(name)
    if not isinstance(items, list):
        raise NotAnExport(f"{where}{name} is no list")
    return items
