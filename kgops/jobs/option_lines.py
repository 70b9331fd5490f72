"""Applied options as a line of the log and as the booleans of `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kgops.jobs.text import one_line

# Names in the `config.json` of the group's scripts, and the option that each stands for.
DOCUMENTED = {
    "use_mixed_precision": "precision",
    "use_gradient_checkpointing": "gradient_checkpointing",
    "enable_memory_cleanup": "memory_cleanup",
}
SEGMENTS = "expandable_segments"  # a profile's, in the worker's environment
_MIXED = ("fp16", "bf16")


def option_line(name: str, requested: Any, applied: Any, reason: str | None) -> str:
    """`mixed precision: on (fp16)`, `gradient checkpointing: off (requested on: …)`."""
    label, state, details = name.replace("_", " "), _shown(applied), []
    if name == "precision":
        label, state = "mixed precision", _shown(applied in _MIXED)
        details.append(_shown(applied))
    differs = _shown(requested) != _shown(applied)
    # A requested `auto` differs from its applied value without any request having been refused.
    if differs and (requested != "auto" or (name == "precision" and reason)):
        details.append(f"requested {_shown(requested)}")
    remarks = ": ".join(filter(None, [", ".join(details), reason]))
    return one_line(f"{label}: {state} ({remarks})" if remarks else f"{label}: {state}")


def booleans(
    options: Mapping[str, Mapping[str, Any]], requested_options: Mapping[str, Any]
) -> dict[str, bool]:
    """The applied value of each documented option, and under `…_requested` the requested one."""
    flags = {}
    for name, option in DOCUMENTED.items():
        # Only memory cleanup is on by default: the scripts had a flag that disables it.
        requested = requested_options.get(option, option == "memory_cleanup")
        flags[name] = _is_on(option, options[option]["applied"])
        flags[f"{name}_requested"] = _is_on(option, requested)
    return flags


def _is_on(option: str, value: Any) -> bool:
    return value in (*_MIXED, "auto") if option == "precision" else value in (True, "on")


def _shown(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
