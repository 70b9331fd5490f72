"""Exports a run to JSON and imports it again, lossless.

`{"kgops_export": 2, "runs": [{"run": {…}, "job": {…}, …, "series": [{"name", "step", "value", "at"}]}]}`: keys
are the database's tables and columns. JSON has no infinity: where a column holds one it is written as the text
"Infinity" or "-Infinity". A NaN that a worker reported is recorded as null.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from kgops import __version__
from kgops.errors import BadInput
from kgops.jobs.cluster import must_be_free, written
from kgops.jobs.numbers import finite_json
from storage import transfer
from storage.database import Connection
from storage.runs import STATES
from storage.transfer import Column, Curve, Rows

FORMAT = 2
IMPORTED = "imported"  # event kind that marks an imported run with its origin
_SPEC = ("job", "plan", "environment")
_CURVE = ("step", "value", "at")
_INFINITE = {"Infinity": math.inf, "-Infinity": -math.inf}
_LARGEST_INTEGER = (1 << 63) - 1


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
        except ValueError:  # an imported job or plan may contain NaN or infinity
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
    try:
        export = json.loads(text.decode("utf-8"), parse_constant=_no_constant)
        if not isinstance(export, dict) or "kgops_export" not in export:
            raise NotAnExport("it has no key `kgops_export`: this is not a kgops export")
        if export["kgops_export"] != FORMAT:
            raise NotAnExport(f"its format is {export['kgops_export']!r:.20}; this kgops reads {FORMAT}")
        return [_from_table(conn, table, f"runs[{i}]") for i, table in enumerate(_list(export, "runs", ""))]
    except UnicodeDecodeError as error:
        raise BadInput(f"{source}: not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"{source}: not JSON at line {error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise BadInput(f"{source}: nested too deeply") from error
    except ValueError as error:  # NotAnExport, and a number of more digits than Python reads
        raise BadInput(f"{source}: {error}") from error


# --- written --------------------------------------------------------------------------------------


def _as_table(rows: Rows) -> dict[str, Any]:
    return {
        "run": _plain(rows.run),
        **{name: rows.spec[name] for name in _SPEC},
        **{name: [_plain(row) for row in rows_of_table] for name, rows_of_table in rows.tables.items()},
        "series": [
            {
                "name": curve.name,
                "step": [_number(x) for x in curve.steps],
                "value": [_number(x) for x in curve.values],
                "at": [_number(x) for x in curve.times],
            }
            for curve in rows.curves
        ],
    }


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _number(value) for name, value in row.items()}


def _number(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


# --- read -----------------------------------------------------------------------------------------


def _from_table(conn: Connection, table: Any, where: str) -> Rows:
    if not isinstance(table, dict):
        raise NotAnExport(f"{where} is not a table")
    known = {"run", "series", *_SPEC, *transfer.TABLES}
    if unknown := next((name for name in table if name not in known), None):
        raise NotAnExport(
            f"{where} has {unknown!r:.60}, which this kgops does not know: a newer one wrote it"
        )
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
        raise NotAnExport(f"{where} is not a table")
    names = {column.name for column in columns}
    if unknown := next((name for name in row if name not in names), None):
        raise NotAnExport(
            f"{where} has {unknown!r:.60}, which this kgops does not know: a newer one wrote it"
        )
    return {column.name: _value(column, row.get(column.name), where) for column in columns}


def _value(column: Column, value: Any, where: str) -> Any:
    at = f"{where}.{column.name}"
    if column.is_json:
        if not isinstance(value, dict):
            raise NotAnExport(f"{at} is not a table")
        _must_be_text(value, at)
        return value
    if value is None:
        if column.required:
            raise NotAnExport(f"{at} is missing")
        return None
    return _PARSERS[column.type](value, at)


def _text(value: Any, at: str) -> str:
    if not isinstance(value, str):
        raise NotAnExport(f"{at} is not text: {value!r:.40}")
    _must_be_text(value, at)
    return value


def _integer(value: Any, at: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST_INTEGER:
        raise NotAnExport(f"{at} is not an integer of at most 64 bits: {value!r:.40}")
    return value


def _real(value: Any, at: str) -> float:
    if isinstance(value, str) and value in _INFINITE:
        return _INFINITE[value]
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise NotAnExport(f"{at} is not a number: {value!r:.40}")
    try:
        return float(value)
    except OverflowError:
        raise NotAnExport(f"{at} is too large for a float") from None


_PARSERS: dict[str, Callable[[Any, str], Any]] = {"TEXT": _text, "INTEGER": _integer, "REAL": _real}


def _curve(one: Any, where: str) -> Curve:
    if not isinstance(one, dict):
        raise NotAnExport(f"{where} is not a table")
    steps, values, times = (_list(one, name, f"{where}.") for name in _CURVE)
    if not len(steps) == len(values) == len(times):
        raise NotAnExport(f"{where} has {len(steps)} steps, {len(values)} values and {len(times)} times")
    return Curve(
        _text(one.get("name"), f"{where}.name"),
        [_real(x, f"{where}.step") for x in steps],
        [None if x is None else _real(x, f"{where}.value") for x in values],
        [_real(x, f"{where}.at") for x in times],
    )


def _list(table: Mapping[str, Any], name: str, where: str) -> list[Any]:
    items = table.get(name)
    if not isinstance(items, list):
        raise NotAnExport(f"{where}{name} is not a list")
    return items


def _must_be_text(value: Any, at: str) -> None:
    """Refuses half a surrogate pair: valid JSON, but no database text."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise NotAnExport(f"{at} contains half a surrogate pair: not valid text") from None


def _no_constant(word: str) -> NoReturn:
    raise NotAnExport(f"{word} is not valid JSON")
