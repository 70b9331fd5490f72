"""What a feed says, as lines of JSON: `hello`, a whole picture, then changes of single fields of single rows.

    {"type": "hello", "protocol": 1, "least": 1, "kgops": "1.0.0"}
    {"type": "picture", "gpu": {"0": {"name": "Tesla T4", …}}, "process": {…}, "run": {…}, "alert": {…}, "host": {…}}
    {"type": "change", "set": {"gpu": {"0": {"utilization_percent": 97}}}, "drop": {"run": ["17"]}}
    {"type": "alive"}

A reader takes the fields below and ignores others, so that a newer kgops may add some. A change of what a field means
needs another protocol number. `least` is the smallest number whose reader still understands the feed; a reader itself
understands feeds from LEAST_READ on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from kgops.hosts.typed_json import LARGEST_INTEGER, Misfit, from_json, to_json
from kgops.jobs.text import one_line

PROTOCOL = 1
LEAST_WRITTEN = 1  # the oldest reader that understands what is written here
LEAST_READ = 1  # the oldest feed that is understood here
LONGEST_LINE = 1 << 20  # 8 GPUs with 64 processes each and 100 runs are about 120 kB

Cell = str | int | float | bool | None
Row = dict[str, Cell]
Picture = dict[str, dict[str, Row]]  # rows by table and key

_LONGEST_TEXT = 300
_OF_ITS_HOST = ("id", "folder")  # the key of a row, and a path there
_GPU = re.compile(r"[0-9]{1,3}(:[0-9]{1,3})?")


class Table(NamedTuple):
    key: re.Pattern[str]
    most_rows: int
    fields: dict[str, type]


TABLES = {
    "host": Table(
        re.compile("host"), 1, {"problem": str, "driver": str, "runs": int, "states_may_be_outdated": bool}
    ),
    "gpu": Table(
        _GPU,
        256,
        {
            "name": str,
            "uuid": str,
            "memory_total_mib": float,
            "memory_used_mib": float,
            "reserved_mib": float,  # by runs of kgops
            "used_by_runs_mib": float,
            "utilization_percent": float,
            "temperature_c": float,
            "power_w": float,
            "problem": str,
        },
    ),
    "process": Table(
        re.compile(r"[0-9]{1,3}(:[0-9]{1,3})?/[0-9]{1,10}"),
        1024,
        {
            "gpu": str,
            "pid": int,
            "user": str,
            "used_mib": float,
            "run": int,
            "started_at": float,
            "command": str,
        },
    ),
    "run": Table(re.compile(r"[1-9][0-9]{0,17}"), 1024, {}),  # those of its record
    "alert": Table(re.compile(r".{1,300}"), 256, {"kind": str, "text": str, "run": int, "gpu": int}),
}


@cache
def fields_of(table: str) -> dict[str, type]:
    """The fields of the table's rows, with their types."""
    if table != "run":
        return TABLES[table].fields
    from storage.runs import field_types  # with SQLite, which the first frame does not wait for

    return {name: kind for name, kind in field_types().items() if name not in _OF_ITS_HOST}


def as_line(message: Mapping[str, Any]) -> bytes:
    """ASCII: no control character and no line end but the last."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def difference(before: Picture, after: Picture) -> dict[str, Any] | None:
    """The change that makes `after` of `before`; None if they are equal."""
    changed: dict[str, dict[str, Row]] = {}
    dropped: dict[str, list[str]] = {}
    for table, rows in after.items():
        known = before.get(table, {})
        if rows == known:
            continue
        for key, row in rows.items():
            old = known.get(key)
            fields = row if old is None else {k: v for k, v in row.items() if k not in old or old[k] != v}
            if fields or old is None:
                changed.setdefault(table, {})[key] = fields
        if gone := [key for key in known if key not in rows]:
            dropped[table] = gone
    if not changed and not dropped:
        return None
    return {"type": "change", "set": changed, "drop": dropped}


def sendable(row: Mapping[str, Cell]) -> Row:
    """A row as it may be sent: texts cut, and infinite numbers unknown, which JSON has no word for."""
    return {name: one[:_LONGEST_TEXT] if isinstance(one, str) else one for name, one in to_json(row).items()}


def accepted(table: str, key: Any, fields: Any) -> Row | None:
    """The known fields of a row from outside, each of its type and harmless; None if the row has no place here."""
    known = TABLES[table]
    if not isinstance(key, str) or not known.key.fullmatch(key) or one_line(key) != key:
        return None
    if not isinstance(fields, dict):
        return None
    return {name: _cell(kind, fields[name]) for name, kind in fields_of(table).items() if name in fields}


def _cell(kind: type[Cell], value: Any) -> Cell:
    try:
        cell = from_json(kind, value)
    except Misfit:
        return None
    if isinstance(cell, str):
        return one_line(cell, _LONGEST_TEXT)
    return cell if abs(cell or 0) <= LARGEST_INTEGER else None
