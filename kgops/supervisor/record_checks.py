"""Validates the JSON of an imported run. An invalid run is refused, so that listings, plans and screens can rely
on every recorded run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kgops.jobs import events
from kgops.jobs.json_checks import ANY, Maybe, schema_error
from kgops.jobs.timestamps import is_timestamp
from storage.transfer import Rows

__all__ = ["misfit"]


_CHANGE = {"option": str, "before": ANY, "after": ANY}
_FALLBACK = {"changes": [_CHANGE], "effect": str, "reason": str}
_CHOICE = {"option": str, "requested": ANY, "applied": ANY, "chosen_by": str, "reason": Maybe(str)}
_FORECAST = {
    "on": str,
    "on_gpu": bool,
    "predicted_mib": float,
    "modelled_s": Maybe(float),
    "estimate": {"parts_mib": {str: float}, "phase?": Maybe(str)},
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
_SPEC = {"job": _JOB, "plan": _PLAN, "environment": _ENVIRONMENT}
_STEP = {"settings?": Maybe({str: ANY}), "fallback?": Maybe(_FALLBACK)}
_EVENTS: dict[str, Any] = {
    "step_down": _STEP,
    "again": _STEP,
    events.FAILED: {"reason": str},
    events.PREDICTED: {"mib": float, "of": str, "by": str},
}


# Times that are shown as dates.
_TIMES = {"attempt": ("started_at", "ended_at"), "note": ("at",)}
_RUN_TIMES = ("submitted_at", "started_at", "ended_at", "reported_at")


def misfit(rows: Rows) -> str | None:
    """The first invalid value and where it is; None if all are valid."""
    problems = [schema_error(rows.spec[name], expected, name) for name, expected in _SPEC.items()]
    for event in rows.tables["event"]:
        if event["kind"] in _EVENTS:
            problems.append(schema_error(event["body"], _EVENTS[event["kind"]], f"event {event['kind']}"))
    problems += [_invalid_time(rows.run, name, "run") for name in _RUN_TIMES]
    for table, names in _TIMES.items():
        problems += [_invalid_time(row, name, table) for row in rows.tables[table] for name in names]
    return next((problem for problem in problems if problem), None)


def _invalid_time(row: Mapping[str, Any], name: str, table: str) -> str | None:
    time = row[name]
    return None if time is None or is_timestamp(time) else f"{table}.{name} is not a valid time: {time!r}"
