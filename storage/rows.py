"""Rows and JSON as values, also from a damaged database: what cannot be read is None, n/a or empty."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
UNREADABLE = "n/a"
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
    "None": (type(None),),
}
# Of a value that is required and cannot be read; a number of this kind is shown as n/a.
_INSTEAD: dict[str, Any] = {"str": UNREADABLE, "int": 0, "float": math.nan}
# By kind, the types of the rows that fit it: most rows of a table have the same.
_fitting: dict[Any, set[tuple[type, ...]]] = {}


def made(kind: type[T], rows: Iterable[Sequence[Any]]) -> list[T]:
    """A value of this NamedTuple or dataclass for each row, whose columns are its first fields."""
    known = _fitting.setdefault(kind, set())
    return [kind(*(row if tuple(map(type, row)) in known else mended(kind, row, known))) for row in rows]


def mended(kind: Any, row: Sequence[Any], known: set[tuple[type, ...]]) -> Sequence[Any]:
    """The row with None, or what stands for an unreadable value, where a value has another type than its field."""
    fields = list(kind.__annotations__.values())[: len(row)]
    values = [_mended(value, annotation) for value, annotation in zip(row, fields, strict=True)]
    if all(one is other for one, other in zip(values, row, strict=True)):
        known.add(tuple(map(type, row)))
        return row
    return values


def _mended(value: Any, annotation: Any) -> Any:
    names = getattr(annotation, "__forward_arg__", annotation).split(" | ")  # a NamedTuple has ForwardRefs
    if _is_one_of(value, names):
        return value
    return None if "None" in names else _INSTEAD[names[0]]


def _is_one_of(value: Any, names: Iterable[str]) -> bool:
    return any(isinstance(value, _TYPES.get(name.partition("[")[0], object)) for name in names)


def misfits(table: Any, annotations: Mapping[str, str]) -> list[str]:
    """The names of attributes whose values have other types than annotated."""
    return [
        name
        for name, annotation in annotations.items()
        if not _is_one_of(getattr(table, name), annotation.split(" | "))
    ]


def json_table(text: Any) -> dict[str, Any]:
    """A column of JSON; empty where it is damaged."""
    value = json_value(text)
    return value if isinstance(value, dict) else {}


def json_value(text: Any) -> Any:
    """A column of JSON; None where it is damaged."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def fits(row: Sequence[Any], kinds: Sequence[str]) -> bool:
    return all(isinstance(value, _TYPES[kind]) for value, kind in zip(row, kinds, strict=True))


def texts(rows: Iterable[Sequence[Any]]) -> list[str]:
    """The values of a column of text."""
    return [row[0] if isinstance(row[0], str) else UNREADABLE for row in rows]
