"""`kgops run train`: train and evaluate a knowledge-graph embedding model."""

from __future__ import annotations

from typing import Any

import click

from kgops.cli import devices
from kgops.cli.job_options import add_options, given_settings, key_options
from kgops.cli.launching import common_options, merged, start
from kgops.errors import BadJob
from kgops.jobs import recipes
from kgops.jobs.job import Job, read_job
from kgops.jobs.options import OPTIONS
from kgops.jobs.train import FILES, TRAIN, spread_problems

PRECISIONS = OPTIONS["precision"].values


@click.command("train", epilog="\b\nExample:  kgops run train --dataset nations --num-epochs 20")
@common_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Train and evaluate ConvE, or any PyKEEN model, on a PyKEEN dataset or on files of triples.

    Every flag of train_pytorch.py works as it did there.
    """
    ctx.exit(start(job_of(given), merged(ctx, given)))


def job_of(given: dict[str, Any]) -> Job:
    """Remove the job's flags from `given` and return the job."""
    recipe = given.pop("recipe")
    settings = given_settings(TRAIN.keys, given, (*FILES, "output_dir"))
    options: dict[str, Any] = {
        "precision": given.pop("precision") or ("auto" if given.pop("use_mixed_precision") else None),
        "batch_size": given.pop("batch_size"),
        "entity_chunk": given.pop("entity_chunk"),
        "gradient_checkpointing": given.pop("use_gradient_checkpointing") or None,
        "compile": given.pop("compile"),
        "cuda_graphs": given.pop("cuda_graphs") or None,
        "memory_cleanup": False if given.pop("disable_memory_cleanup") else None,
        "num_workers": given.pop("num_workers"),
        "devices": devices.requested(given),
    }
    given.pop("use_mixed_precision", None)
    table = {
        "workload": "train",
        "train": settings,
        "options": {name: value for name, value in options.items() if value is not None},
    }
    if recipe is not None:
        table = recipes.with_changes(recipe, table)
    job = read_job(table, "this command")
    if problems := spread_problems(job.settings, job.options):
        raise BadJob("this command", problems)
    return job


FLAGS = [
    click.Option(
        ["--recipe"],
        metavar="NAME",
        help=f"Start from a job that ships with kgops: {', '.join(recipes.names())}.",
    ),
    *key_options(TRAIN.keys),
    click.Option(["--batch-size"], type=int, help="Queries (head, relation) per step.  [default: 256]"),
    click.Option(
        ["--precision"],
        type=click.Choice(PRECISIONS),
        help="Number format of matrix products.  [default: by the profile; fp32 on a CPU]",
    ),
    click.Option(["--use-mixed-precision"], is_flag=True, help="Alias of --precision auto."),
    click.Option(
        ["--entity-chunk"], type=int, help="Entities scored at a time; default: chosen for the device."
    ),
    click.Option(
        ["--use-gradient-checkpointing"], is_flag=True, help="Recompute activations in the backward pass."
    ),
    click.Option(["--compile"], type=click.Choice(OPTIONS["compile"].values), help="torch.compile mode."),
    devices.OPTION,
    click.Option(["--cuda-graphs"], is_flag=True, help="Replay each step as one CUDA graph."),
    click.Option(["--disable-memory-cleanup"], is_flag=True, help="Never release cached GPU memory."),
    click.Option(
        ["--num-workers"], type=int, help="Accepted for compatibility: kgops needs no loader processes."
    ),
]
add_options(command, FLAGS)
