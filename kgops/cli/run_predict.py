"""`kgops run predict`: answer questions with a trained model."""

from __future__ import annotations

from typing import Any

import click

from kgops.cli.job_options import GroupedHelp, add_options, click_options, job_of_flags, job_table
from kgops.cli.launching import common_options, merged, start
from kgops.jobs.job import Job
from kgops.workloads.predict.job import PREDICT
from kgops.workloads.predict.options import FILES, FOLDERS, WRITTEN


@click.command(
    "predict",
    cls=GroupedHelp,
    epilog="\b\nExample:  kgops run predict --run 1 --head usa --relation embassy --top-k 5",
)
@common_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Rank the answers to questions: leave out --head or --tail, or both with --best.

    Each answer has its rank among all candidates, its score, its probability as the model's training loss defines it,
    and whether the triple is known (train, valid, test) or new.
    """
    ctx.exit(start(job_of(given), merged(ctx, given)))


def job_of(given: dict[str, Any]) -> Job:
    """Remove the job's flags from `given` and return the job."""
    return job_of_flags(job_table(PREDICT, given, (*FILES, *FOLDERS, *WRITTEN)))


FLAGS = click_options(PREDICT.options)
add_options(command, FLAGS)
