"""`kgops run sweep`: start one run of a job for each combination of settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from kgops.cli.launching import common_options, launched, merged
from kgops.cli.named_jobs import job_by_name
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import for_writing
from kgops.errors import Usage
from kgops.experiments.variants import read_axis, variants
from kgops.options.run import LONGEST_LABEL


@click.command(
    "sweep",
    epilog="\b\nExample:  kgops run sweep kinships --vary batch_size=256,512 --vary learning_rate=0.001,0.003",
)
@click.argument("job", metavar="FILE.toml|RUN|RECIPE")
@click.option(
    "--vary",
    "varied",
    multiple=True,
    required=True,
    metavar="NAME=A,B",
    help="Values to combine; may be repeated.",
)
@common_options
@click.pass_context
def command(ctx: click.Context, /, job: str, varied: tuple[str, ...], **given: Any) -> None:
    """Start one run for each combination of settings. Runs wait until enough GPU memory is free.

    NAME is an option, a key of the workload's table, or a {placeholder} of a command. Tag the runs to list them later:
    `--tag sweep-7`, then `kgops runs tag:sweep-7 --sort test_mrr`. Use `kgops bench matrix` to compare speeds. Runs
    without a GPU start all at once; with `--exclusive` they run one after another.
    """
    flags = merged(ctx, given)
    if flags["dry_run"] or flags["label"]:
        raise Usage("a sweep takes neither --label nor --dry-run", "leave them out: each run gets a label")
    jobs = variants(job_by_name(for_writing(), job), [read_axis(text) for text in varied])
    started = {}
    for name, one in jobs.items():
        named = replace(one, label=f"{one.label} {name}"[:LONGEST_LABEL])
        started[launched(named, flags)] = name
        if not flags["as_json"]:
            say(f"run {list(started)[-1]}: {name}")
    if flags["as_json"]:
        print_json([{"run": number, "settings": name} for number, name in started.items()])
    tell(f"`kgops compare {' '.join(map(str, list(started)[:8]))}` shows them side by side.")
