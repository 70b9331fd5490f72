"""Schemas of JSON that is stored, and the check of a value against one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class Maybe(NamedTuple):
    """May be null."""

    schema: Any


ANY = object()


def schema_error(value: Any, schema: Any, path: str) -> str | None:
    """The first value that does not match the schema, with its path; None if all match."""
    if schema is ANY:
        return None
    if isinstance(schema, Maybe):
        return None if value is None else schema_error(value, schema.schema, path)
    if isinstance(schema, list):
        inner = (
            [(one, schema[0], f"{path}[{i}]") for i, one in enumerate(value)] if _is(value, list) else None
        )
        return _first(inner, f"{path} is no list")
    if isinstance(schema, dict):
        return _first(_members(value, schema, path) if _is(value, dict) else None, f"{path} is no table")
    fits = _is_number(value) if schema is float else _is_whole(value) if schema is int else _is(value, schema)
    return None if fits else f"{path} is no {_TYPE_NAMES[schema]}: {value!r:.40}"


_TYPE_NAMES = {str: "text", float: "number", int: "whole number", bool: "truth value"}


def _members(table: Mapping[str, Any], schema: Mapping[Any, Any], path: str) -> list[tuple[Any, Any, str]]:
    if str in schema:
        return [(value, schema[str], f"{path}.{name}") for name, value in table.items()]
    members = []
    for key, inner in schema.items():
        name = key.removesuffix("?")
        if name in table or name == key:
            members.append((table.get(name), inner, f"{path}.{name}"))
    return members


def _first(inner: list[tuple[Any, Any, str]] | None, otherwise: str) -> str | None:
    if inner is None:
        return otherwise
    return next((error for member in inner if (error := schema_error(*member))), None)


def _is_whole(value: Any) -> bool:
    """A column can hold it."""
    return _is(value, int) and not _is(value, bool) and -(2**63) <= value < 2**63


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind)


def _is_number(value: Any) -> bool:
    """Finite, and no truth value."""
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def fitting(table: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The table without members that do not fit the schema; of a list, the elements that fit stay."""
    kept = dict(table)
    for key, expected in schema.items():
        name = key.removesuffix("?")
        if name not in kept or schema_error(kept[name], expected, name) is None:
            continue
        inner = expected.schema if isinstance(expected, Maybe) else expected
        if isinstance(inner, list) and isinstance(kept[name], list):
            kept[name] = [one for one in kept[name] if schema_error(one, inner[0], name) is None]
        else:
            del kept[name]
    return kept


_CHANGE = {"option": str, "before": ANY, "after": ANY}
_FALLBACK = {"changes": [_CHANGE], "effect": str, "reason": str}
_CHOICE = {"option": str, "requested": ANY, "applied": ANY, "chosen_by": str, "reason": Maybe(str)}
_FORECAST = {
    "on": str,
    "on_gpu": bool,
    "predicted_mib": float,
    "modelled_s": Maybe(float),
    "time_kind?": Maybe(str),
    "estimate": {"parts_mib": {str: float}, "phase?": Maybe(str), "live_mib?": Maybe(float)},
}
_PROCESS = {
    "kind": str,
    "on": str,
    **dict.fromkeys(("start_mib", "constant_mib", "factor", "data_mib", "samples"), float),
}
_DATA = {name: Maybe(str) for name in ("dataset?", "train?", "valid?", "test?", "checkpoint_dir?")}
_JOB = {
    "train?": Maybe(_DATA),
    "pipeline?": Maybe({"train?": Maybe(_DATA)}),
    "options?": Maybe({str: ANY}),
}
_PLAN = {
    "choices?": Maybe([_CHOICE]),
    "forecast?": Maybe(_FORECAST),
    "process?": Maybe(_PROCESS),
    "disk?": Maybe({"total_mib": float, "at_most": bool}),
    "fallbacks?": Maybe([_FALLBACK]),
    "skipped?": Maybe([{**_FALLBACK, "skipped": str}]),
    "cwd?": Maybe(str),
}
_ENVIRONMENT = {"variables?": Maybe({str: ANY}), "machine?": Maybe({str: ANY}), "gpus?": Maybe([{}])}
SPEC = {"job": _JOB, "plan": _PLAN, "environment": _ENVIRONMENT}
_STEP = {"settings?": Maybe({str: ANY}), "fallback?": Maybe(_FALLBACK)}
EVENTS: dict[str, Any] = {
    "step_down": _STEP,
    "again": _STEP,
    "failed": {"reason": str},
}
