"""What readers of a record rely on in its JSON: a run from elsewhere that has it otherwise is refused, since
every listing, plan and screen after it would have to doubt what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kgops.jobs import events
from kgops.jobs.json_checks import ANY, Maybe, misfit_in
from kgops.jobs.timestamps import is_moment
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


# Moments that are shown as dates: no calendar has those outside of these.
_MOMENTS = {"attempt": ("started_at", "ended_at"), "note": ("at",)}
_RUN_MOMENTS = ("submitted_at", "started_at", "ended_at", "reported_at")


def misfit(rows: Rows) -> str | None:
    """What is not as it is read, and where."""
    found = [misfit_in(rows.spec[name], shape, name) for name, shape in _SPEC.items()]
    for event in rows.tables["event"]:
        if event["kind"] in _EVENTS:
            found.append(misfit_in(event["body"], _EVENTS[event["kind"]], f"event {event['kind']}"))
    found += [_no_moment(rows.run, name, "run") for name in _RUN_MOMENTS]
    for table, names in _MOMENTS.items():
        found += [_no_moment(row, name, table) for row in rows.tables[table] for name in names]
    return next((trouble for trouble in found if trouble), None)


def _no_moment(row: Mapping[str, Any], name: str, table: str) -> str | None:
    at = row[name]
    return None if at is None or is_moment(at) else f"{table}.{name} is not a valid time: {at!r}"
