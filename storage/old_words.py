"""Names that kgops 0.1.0 wrote into JSON, and those of today: for its databases, exports and run folders.

Migrations 005 and 007 call this file, so it is as frozen as a released migration.
"""

from __future__ import annotations

import json
from typing import Any

_KEYS = {
    "card": "gpu",
    "cards": "gpus",
    "on_card": "on_gpu",
    "card_mib": "gpu_mib",
    "peak_card_mib": "peak_gpu_mib",
    "lever": "option",
    "levers": "options",
    "ineffective": "unapplied",
    "effective": "applied",
    "rung": "fallback",
    "rungs": "attempt_settings",
    "ladder": "fallbacks",
    "figure": "metric",
    "figures": "metrics",
    "budget": "estimate",
}
_EFFECTS = {"numeric": "rounding", "approximate": "changes results"}
# Below these keys the names are a person's: variables, placeholders of a command, metrics by name.
_FREE = frozenset(
    {"environment", "variables", "on_oom", "settings", "metrics", "figures", "parts_mib", "names", "mib"}
)
EVENTS = {"lever": "option", "traced": "attribution"}
_TABLES = {"lever": "option", "figure": "metric", "traced": "test_triple"}


def renamed(value: Any) -> Any:
    """A job, a plan, an environment or the body of an event in today's names."""
    if isinstance(value, list):
        return [renamed(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {
        _KEYS.get(name, name): inner if name in _FREE else renamed(inner) for name, inner in value.items()
    }
    if found.get("kind") in ("exact", *_EFFECTS):
        kind = found.pop("kind")
        found["effect"] = _EFFECTS.get(kind, kind)
    gpu = found.get("gpu")
    if isinstance(gpu, dict) and "gpu" in gpu:  # of a job: what it asks for
        found["gpu"] = {("wanted" if name == "gpu" else name): inner for name, inner in gpu.items()}
    if "attempt_settings" in found and "gpu" in found and not isinstance(found["gpu"], dict):  # of a plan
        found["gpu_request"] = found.pop("gpu")
    return found


def is_old_plan(table: Any) -> bool:
    return isinstance(table, dict) and "rungs" in table and "attempt_settings" not in table


def renamed_event(kind: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    body = renamed(body)
    if kind == "traced" and "found" in body:
        body["influences"] = body.pop("found")
    return EVENTS.get(kind, kind), body


def renamed_export(table: dict[str, Any]) -> dict[str, Any]:
    """One run of an export of format 1."""
    found = {_TABLES.get(name, name): inner for name, inner in table.items()}
    if isinstance(run := found.get("run"), dict):
        names = {"gpu": "gpu_request", "card": "gpu", "peak_card_mib": "peak_gpu_mib"}
        found["run"] = {names.get(name, name): inner for name, inner in run.items()}
    for name in ("job", "plan", "environment"):
        found[name] = renamed(found.get(name))
    for name in ("option", "attempt", "measurement"):
        if isinstance(rows := found.get(name), list):
            found[name] = [renamed(row) for row in rows]
    if isinstance(rows := found.get("event"), list):
        found["event"] = [_renamed_event_row(row) for row in rows]
    return found


def renamed_bench(table: Any) -> Any:
    """An exported benchmark, or exported values."""
    if isinstance(table, list):
        return [renamed_bench(one) for one in table]
    if not isinstance(table, dict):
        return table
    found = {name: renamed(inner) if name == "fingerprint" else inner for name, inner in table.items()}
    if isinstance(pairs := found.get("pair"), list):
        found["pair"] = [_renamed_pair(pair) for pair in pairs]
    return found


def _renamed_pair(pair: Any) -> Any:
    if not isinstance(pair, dict):
        return pair
    sides = {name: renamed_trial(pair[name]) for name in ("baseline", "measured") if name in pair}
    return {**pair, **sides}


def renamed_trial(trial: Any) -> Any:
    """One side of a pair: what was `asked` of an option is `requested`."""
    trial = renamed(trial)
    options = trial.get("options") if isinstance(trial, dict) else None
    for option in options.values() if isinstance(options, dict) else ():
        if isinstance(option, dict) and "asked" in option:
            option["requested"] = option.pop("asked")
    return trial


def _renamed_event_row(row: Any) -> Any:
    if (
        not isinstance(row, dict)
        or not isinstance(row.get("kind"), str)
        or not isinstance(row.get("body"), dict)
    ):
        return row
    kind, body = renamed_event(row["kind"], row["body"])
    return {**row, "kind": kind, "body": body}


def machine_key(body: dict[str, Any]) -> str:
    """A fingerprint's key as it was made when its GPUs got their name."""

    def without(table: Any, name: str) -> Any:
        return (
            {key: value for key, value in table.items() if key != name} if isinstance(table, dict) else table
        )

    gpus = body.get("gpus")
    told = {
        **body,
        "machine": without(body.get("machine"), "host"),
        "gpus": [without(gpu, "uuid") for gpu in gpus] if isinstance(gpus, list) else gpus,
    }
    import hashlib  # here: OpenSSL takes 3 MB, and supervisors do not need it

    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
