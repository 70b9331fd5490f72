"""What a feed says, as lines of JSON: `hello`, a whole picture, then changes of single fields of single rows.

    {"type": "hello", "protocol": 1, "kgops": "1.0.0"}
    {"type": "picture", "gpu": {"0": {"name": "Tesla T4", …}}, "process": {…}, "run": {…}, "alert": {…}, "host": {…}}
    {"type": "change", "set": {"gpu": {"0": {"utilization_percent": 97}}}, "drop": {"run": ["17"]}}
    {"type": "alive"}

A reader takes the fields below and ignores others, so that a newer kgops may add some. A change of what a field means
needs another protocol number: both ends must have the same.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from kgops.jobs.text import lines, one_line

PROTOCOL = 1
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


T = TypeVar("T")

LARGEST_INTEGER = 1 << 53
_LONGEST_VALUE = 1 << 16
_DEEPEST = 16


class Misfit(ValueError):
    """A value is not of its field's type."""


def to_json(value: Any) -> Any:
    """Values that JSON has words for; NaN and infinity are unknown."""
    if isinstance(value, Mapping):
        return {str(key): to_json(one) for key, one in value.items()}
    if names := _names(cast(Any, type(value))):
        return {name: to_json(getattr(value, name)) for name in names}
    if isinstance(value, (tuple, list)):
        return [to_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def from_json(kind: type[T], value: Any) -> T:
    """`value`, read from JSON, as a record, text, number, tuple or table. Unknown fields are ignored; raises Misfit,
    and TypeError for a record without a field that has no default."""
    return cast(T, _from_json(kind, value))


def _from_json(kind: Any, value: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else _from_json(next(one for one in inner if one is not NoneType), value)
    if origin is tuple:
        listed = _of(value, list)
        kinds = inner[:1] * len(listed) if inner[-1] is Ellipsis else inner
        if len(listed) != len(kinds):
            raise Misfit(f"{len(listed)} values for {len(kinds)}")
        return tuple(map(_from_json, kinds, listed))
    if origin in (dict, Mapping):
        return _any(_of(value, dict), 0)
    if kind in (str, Path):
        text = lines(_of(value, str)[:_LONGEST_VALUE])
        return text if kind is str else Path(text.replace("\0", ""))
    if kind is bool:
        return _of(value, bool)
    if kind in (int, float):
        most = LARGEST_INTEGER if kind is int else sys.float_info.max
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= most:
            raise Misfit(f"{value!r:.40} is not a number")  # NaN, too
        return kind(value)
    given, hints = _of(value, dict), _hints(kind)
    return kind(**{name: _from_json(hints[name], given[name]) for name in _names(kind) if name in given})


def _any(value: Any, depth: int) -> Any:
    """A value of a table whose form nobody knows."""
    if depth > _DEEPEST:
        raise Misfit("tables nested too deeply")
    if isinstance(value, dict):
        return {lines(str(key)[:_LONGEST_VALUE]): _any(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_any(one, depth + 1) for one in value]
    if isinstance(value, str):
        return lines(value[:_LONGEST_VALUE])
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _of(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise Misfit(f"{value!r:.40} is not a {kind.__name__}")
    return value


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Fields of a record; none of other types."""
    if isinstance(kind, type) and is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return tuple(getattr(kind, "_fields", ()))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
