"""The workload `exec`: any command, with values to try after an out-of-memory."""

from __future__ import annotations

from typing import Any

from kgops.jobs.option import Option, progress_pattern, regular_expression
from kgops.jobs.secrets import masked_arguments
from kgops.jobs.text import FIELD
from kgops.workloads.workload import Workload

_MOST_OOM_VALUES = 100_000  # each fallback has a value of every name
_NOT_FINITE = (float("inf"), float("-inf"))


def _check_exec(settings: dict[str, Any]) -> list[str]:
    problems = []
    command = settings["command"]
    if not command or not command[0]:
        problems.append("exec.command: empty; name a program to run")
    used = {name for part in command for name in FIELD.findall(part)}
    for name, values in settings["on_oom"].items():
        if (
            not isinstance(values, list)
            or not values
            or not all(isinstance(v, (str, int, float)) and v not in _NOT_FINITE and v == v for v in values)
        ):
            problems.append(f"exec.on_oom.{name}: expected a list of values, the first to try first")
        elif name not in used:
            problems.append(f"exec.on_oom.{name}: the command has no {{{name}}} to replace")
    lengths = [len(values) for values in settings["on_oom"].values() if isinstance(values, list)]
    if len(lengths) * max(lengths, default=0) > _MOST_OOM_VALUES:
        problems.append(f"exec.on_oom: more than {_MOST_OOM_VALUES:,} values in all its fallbacks")
    return problems


def _exec_label(settings: dict[str, Any]) -> str:
    words = [part for part in masked_arguments(settings["command"]) if part.strip()]
    return " ".join(words).replace("\n", " ")


EXEC = Workload(
    name="exec",
    summary="any command, supervised",
    options=(
        Option("command", "strings", required=True),
        Option("cwd", "str"),
        Option("progress_regex", "str", check=progress_pattern),
        Option("metric_regex", "str", check=regular_expression),
        Option("on_oom", "table", {}),
    ),
    label=_exec_label,
    check=_check_exec,
    attempts=1,  # an unknown command is not repeated unless requested
    module=None,
    has_graph=False,
    has_flags=False,
)
