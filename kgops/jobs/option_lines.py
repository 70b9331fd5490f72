"""What was applied of an option, as people look for it: a line of the log, and the booleans of `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kgops.jobs.text import one_line

__all__ = ["DOCUMENTED", "booleans", "option_line"]

# The names in the `config.json` of the group's scripts, and the option that each speaks of.
DOCUMENTED = {
    "use_mixed_precision": "precision",
    "use_gradient_checkpointing": "gradient_checkpointing",
    "enable_memory_cleanup": "memory_cleanup",
}
_MIXED = ("fp16", "bf16")


def option_line(name: str, requested: Any, applied: Any, reason: str | None) -> str:
    """`mixed precision: on (fp16)`, `gradient checkpointing: off (requested on: …)`."""
    label, state, details = name.replace("_", " "), _shown(applied), []
    if name == "precision":
        label, state = "mixed precision", _shown(applied in _MIXED)
        details.append(_shown(applied))
    differs = _shown(requested) != _shown(applied)
    # What is left to the worker differs from what it finds without anybody having been refused something.
    if differs and (requested != "auto" or (name == "precision" and reason)):
        details.append(f"requested {_shown(requested)}")
    told = ": ".join(filter(None, [", ".join(details), reason]))
    return one_line(f"{label}: {state} ({told})" if told else f"{label}: {state}")


def booleans(options: Mapping[str, Mapping[str, Any]], asked: Mapping[str, Any]) -> dict[str, bool]:
    """The documented ones: what was applied, and under `…_requested` what the job had asked for."""
    found = {}
    for name, option in DOCUMENTED.items():
        # Unasked, cleanup alone is on: their scripts had a flag that disables it.
        requested = asked.get(option, option == "memory_cleanup")
        found[name] = _is_on(option, options[option]["applied"])
        found[f"{name}_requested"] = _is_on(option, requested)
    return found


def _is_on(option: str, value: Any) -> bool:
    return value in (*_MIXED, "auto") if option == "precision" else value in (True, "on")


def _shown(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
