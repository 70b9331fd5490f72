"""`kgops run train`: train and evaluate a knowledge-graph embedding model."""

from __future__ import annotations

from typing import Any

import click

from kgops.cli.job_options import (
    GroupedHelp,
    GroupOption,
    add_options,
    click_options,
    job_of_flags,
    job_table,
)
from kgops.cli.launching import common_options, merged, start
from kgops.cli.output import tell
from kgops.jobs.job import Job
from kgops.workloads.train import recipes
from kgops.workloads.train.job import TRAIN
from kgops.workloads.train.options import FILES


@click.command(
    "train", cls=GroupedHelp, epilog="\b\nExample:  kgops run train --dataset nations --num-epochs 20"
)
@common_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Train and evaluate ConvE, or any PyKEEN model, on a PyKEEN dataset or on files of triples.

    Every flag of train_pytorch.py is accepted. The default trains another objective: a sample is a (head, relation)
    with all its tails, and inverse relations are added. --recipe script trains the script's own.
    """
    job = job_of(given)
    if job.settings["train"] and not job.settings["test"]:
        tell(
            "note: without --test there is no test MRR"
            + ("." if job.settings["valid"] else ", and without --valid no best model.")
        )
    ctx.exit(start(job, merged(ctx, given)))


def job_of(given: dict[str, Any]) -> Job:
    """Remove the job's flags from `given` and return the job."""
    recipe = given.pop("recipe")
    table = job_table(TRAIN, given, (*FILES, "output_dir"))
    return job_of_flags(table if recipe is None else recipes.with_changes(recipe, table))


FLAGS = [
    GroupOption(
        ["--recipe"],
        metavar="NAME",
        help=f"Start from a job that ships with kgops: {', '.join(recipes.names())}. `script` takes your own graph.",
        group="data",
    ),
    *click_options(TRAIN.options),
]
add_options(command, FLAGS)
