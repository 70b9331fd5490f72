"""Records as JSON and back: what another machine wrote is cleaned, and taken where it is of its field's type."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from kgops.jobs.text import lines

T = TypeVar("T")

LARGEST_INTEGER = 1 << 53
_LONGEST_TEXT = 1 << 16
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
        text = lines(_of(value, str)[:_LONGEST_TEXT])
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
        return {lines(str(key)[:_LONGEST_TEXT]): _any(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_any(one, depth + 1) for one in value]
    if isinstance(value, str):
        return lines(value[:_LONGEST_TEXT])
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
