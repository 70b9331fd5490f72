"""`kgops run exec`: any command, supervised."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from kgops.cli.launching import common_options, merged, start
from kgops.errors import Usage
from kgops.jobs.job import read_job


@click.command(
    "exec",
    epilog='\b\nExample:  kgops run exec --on-oom batch_size=64,32,16 -- python train.py --batch-size "{batch_size}"',
)
@click.argument("arguments", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--progress-regex", help="Finds groups done and total in the log's lines.")
@click.option("--metric-regex", help="Finds metrics: groups named for them, or name and value; and step.")
@click.option(
    "--on-oom",
    multiple=True,
    metavar="NAME=V1,V2…",
    help="Values for {NAME}: the first to start with, the next after each out-of-memory.",
)
@click.option("--cwd", type=click.Path(file_okay=False), help="Folder to run in; default: this one.")
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
    """Supervise any command: log, exit code, host memory, GPU memory of its whole process tree."""
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
    """A number where writing it gives the same text again: the command gets what was typed."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and math.isfinite(value):
            return value
    return text
