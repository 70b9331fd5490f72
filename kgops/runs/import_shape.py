"""What readers of a record rely on in its JSON: a run from elsewhere that has it otherwise is refused, since
every listing, plan and screen after it would have to doubt what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kgops.jobs import events
from kgops.jobs.events import is_figure
from storage.transfer import Rows

__all__ = ["misfit"]


class _Maybe(NamedTuple):
    """May be null."""

    shape: Any


# A table lists the keys that are read; one with `?` may be missing. `{str: x}` is a table of any keys.
_ANY = object()
_CHANGE = {"lever": str, "before": _ANY, "after": _ANY}
_RUNG = {"changes": [_CHANGE], "kind": str, "reason": str}
_CHOICE = {"lever": str, "requested": _ANY, "effective": _ANY, "chosen_by": str, "reason": _Maybe(str)}
_FORECAST = {
    "on": str,
    "on_card": bool,
    "predicted_mib": float,
    "modelled_s": _Maybe(float),
    "budget": {"parts_mib": {str: float}, "phase?": _Maybe(str)},
}
_DATA = {name: _Maybe(str) for name in ("dataset?", "train?", "valid?", "test?", "checkpoint_dir?")}
_JOB = {
    "train?": _Maybe(_DATA),
    "pipeline?": _Maybe({"train?": _Maybe(_DATA)}),
    "levers?": _Maybe({str: _ANY}),
}
_PLAN = {
    "choices?": _Maybe([_CHOICE]),
    "forecast?": _Maybe(_FORECAST),
    "ladder?": _Maybe([_RUNG]),
    "skipped?": _Maybe([{**_RUNG, "skipped": str}]),
    "cwd?": _Maybe(str),
}
_ENVIRONMENT = {"variables?": _Maybe({str: _ANY}), "machine?": _Maybe({str: _ANY}), "cards?": _Maybe([{}])}
_SPEC = {"job": _JOB, "plan": _PLAN, "environment": _ENVIRONMENT}
_STEP = {"settings?": _Maybe({str: _ANY}), "rung?": _Maybe(_RUNG)}
_EVENTS: dict[str, Any] = {
    "step_down": _STEP,
    "again": _STEP,
    events.FAILED: {"reason": str},
    events.PREDICTED: {"mib": float, "of": str, "by": str},
}


# Moments that are shown as dates: no calendar has those outside of these.
_MOMENTS = {"attempt": ("started_at", "ended_at"), "note": ("at",)}
_RUN_MOMENTS = ("submitted_at", "started_at", "ended_at", "reported_at")
_LAST_MOMENT = 253402300799.0  # of the year 9999


def misfit(rows: Rows) -> str | None:
    """What is not as it is read, and where."""
    found = [_misfit(rows.spec[name], shape, name) for name, shape in _SPEC.items()]
    for event in rows.tables["event"]:
        if event["kind"] in _EVENTS:
            found.append(_misfit(event["body"], _EVENTS[event["kind"]], f"event {event['kind']}"))
    found += [_no_moment(rows.run, name, "run") for name in _RUN_MOMENTS]
    for table, names in _MOMENTS.items():
        found += [_no_moment(row, name, table) for row in rows.tables[table] for name in names]
    return next((trouble for trouble in found if trouble), None)


def _no_moment(row: Mapping[str, Any], name: str, table: str) -> str | None:
    at = row[name]
    return None if at is None or 0 <= at <= _LAST_MOMENT else f"{table}.{name} is no moment: {at!r}"


def _misfit(value: Any, shape: Any, where: str) -> str | None:
    if shape is _ANY:
        return None
    if isinstance(shape, _Maybe):
        return None if value is None else _misfit(value, shape.shape, where)
    if isinstance(shape, list):
        inner = (
            [(one, shape[0], f"{where}[{i}]") for i, one in enumerate(value)] if _is(value, list) else None
        )
        return _first(inner, f"{where} is no list")
    if isinstance(shape, dict):
        return _first(_members(value, shape, where) if _is(value, dict) else None, f"{where} is no table")
    fits = is_figure(value) if shape is float else _is(value, shape)
    return None if fits else f"{where} is no {_WORDS[shape]}: {value!r:.40}"


_WORDS = {str: "text", float: "number", bool: "truth value"}


def _members(table: Mapping[str, Any], shape: Mapping[Any, Any], where: str) -> list[tuple[Any, Any, str]]:
    if str in shape:
        return [(value, shape[str], f"{where}.{name}") for name, value in table.items()]
    found = []
    for key, inner in shape.items():
        name = key.removesuffix("?")
        if name in table or name == key:
            found.append((table.get(name), inner, f"{where}.{name}"))
    return found


def _first(inner: list[tuple[Any, Any, str]] | None, otherwise: str) -> str | None:
    if inner is None:
        return otherwise
    return next((trouble for one in inner if (trouble := _misfit(*one))), None)


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind)
