"""`kgops exec`: run any command under supervision."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from kgops.cli.job_options import GroupedHelp
from kgops.cli.launching import common_options, merged, start
from kgops.errors import Usage
from kgops.workloads.job_files import read_job


@click.command(
    "exec",
    cls=GroupedHelp,
    epilog='\b\nExample:  kgops exec --on-oom batch_size=64,32,16 -- python train.py --batch-size "{batch_size}"',
)
@click.argument("arguments", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--progress-regex", help="Pattern for progress in log lines, with groups (?P<done>) and (?P<total>)."
)
@click.option(
    "--metric-regex",
    help="Pattern for metrics in log lines: groups named after metrics, or name and value; optional step.",
)
@click.option(
    "--on-oom",
    multiple=True,
    metavar="NAME=V1,V2…",
    help="OOM fallbacks of {NAME}: the command starts with V1; each out-of-memory moves on to the next value.",
)
@click.option("--cwd", type=click.Path(file_okay=False), help="Working folder; default: this one.")
@common_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    arguments: tuple[str, ...],
    progress_regex: str | None,
    metric_regex: str | None,
    on_oom: tuple[str, ...],
    cwd: str | None,
    **given: Any,
) -> None:
    """Run any command under supervision. kgops records its log, exit code, and the memory of its process tree."""
    settings = {
        "command": list(arguments),
        "cwd": str(Path(cwd or ".").absolute()),
        "progress_regex": progress_regex,
        "metric_regex": metric_regex,
        "on_oom": dict(_values(text) for text in on_oom) or None,
    }
    table = {
        "workload": "exec",
        "exec": {name: value for name, value in settings.items() if value is not None},
    }
    ctx.exit(start(read_job(table, "this command"), merged(ctx, given)))


def _values(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    if not equals or not name.isidentifier():
        raise Usage(f"--on-oom {text!r:.60}: write NAME=first,second,…")
    return name, [_number(value) for value in values.split(",")]


def _number(text: str) -> int | float | str:
    """Return a number only if str() of it gives `text` back, since the command must get the typed text."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and math.isfinite(value):
            return value
    return text
