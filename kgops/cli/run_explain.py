"""`kgops run explain`: find the training triples without which a prediction is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kgops.cli.job_options import add_options, click_options, job_table
from kgops.cli.launching import common_options, merged, start
from kgops.cli.run_tracin import TestTripleOfThree
from kgops.jobs.explain import EXPLAIN
from kgops.jobs.job import Job, read_job
from kgops.options.explain import FILES, FOLDERS, WRITTEN


class TripleOfThree(TestTripleOfThree):
    flag = "--triple"


@click.command(
    "explain",
    cls=TripleOfThree,
    epilog="\b\nExample:  kgops run explain --run 1 --triple usa embassy china",
)
@common_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Find the smallest set of training triples of the head without which a prediction is lost.

    What a removal does is estimated: the head's row alone is trained again, all else as it is. The record has the
    prediction's rank and score before and after, and what each triple does alone.
    """
    ctx.exit(start(job_of(given), merged(ctx, given)))


def job_of(given: dict[str, Any]) -> Job:
    """Remove the job's flags from `given` and return the job."""
    named = given["triple"]
    if named is not None and given["triples"] is None and Path(named).is_file():
        given |= {"triple": None, "triples": named}
    return read_job(job_table(EXPLAIN, given, (*FILES, *FOLDERS, *WRITTEN)), "this command")


FLAGS = click_options(EXPLAIN.options)
add_options(command, FLAGS)
