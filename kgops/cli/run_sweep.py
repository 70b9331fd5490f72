"""`kgops run sweep`: a job in every combination of some settings, as runs of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from kgops.cli.jobs_by_name import job_by_name
from kgops.cli.launching import common_options, launched, merged
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import for_writing
from kgops.errors import Usage
from kgops.experiments.variants import read_axis, variants
from kgops.jobs.job import LONGEST_LABEL


@click.command(
    "sweep",
    epilog="\b\nExample:  kgops run sweep kinships --vary batch_size=256,512 --vary learning_rate=0.001,0.003",
)
@click.argument("job", metavar="FILE.toml|RUN|RECIPE")
@click.option("--vary", "varied", multiple=True, required=True, metavar="NAME=A,B", help="May be repeated.")
@common_options
@click.pass_context
def command(ctx: click.Context, /, job: str, varied: tuple[str, ...], **given: Any) -> None:
    """Start a job in every combination of some settings: as many runs, which wait for room by themselves.

    NAME is an option, a key of the workload's table, or a {placeholder} of a command. Tag them to find them again:
    `--tag sweep-7`, then `kgops runs tag:sweep-7 --sort test_mrr`. To compare speeds take `kgops bench matrix`,
    whose runs take turns. Runs without a GPU begin all at once: `--exclusive` lets them wait for each other.
    """
    flags = merged(ctx, given)
    if flags["dry_run"] or flags["label"]:
        raise Usage("a sweep has a label for each run, and starts them", "leave --label and --dry-run away")
    found = variants(job_by_name(for_writing(), job), [read_axis(text) for text in varied])
    started = {}
    for name, one in found.items():
        named = replace(one, label=f"{one.label} {name}"[:LONGEST_LABEL])
        started[launched(named, flags)] = name
        if not flags["as_json"]:
            say(f"run {list(started)[-1]}: {name}")
    if flags["as_json"]:
        print_json([{"run": number, "settings": name} for number, name in started.items()])
    tell(f"`kgops compare {' '.join(map(str, list(started)[:8]))}` shows them side by side.")
