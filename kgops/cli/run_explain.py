"""`kgops run explain`: find the training triples that a prediction rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kgops.cli.job_options import add_options, click_options, job_of_flags, job_table
from kgops.cli.launching import common_options, merged, start
from kgops.cli.run_tracin import TestTripleOfThree
from kgops.jobs.job import Job
from kgops.workloads.explain.job import EXPLAIN
from kgops.workloads.explain.options import FILES, FOLDERS, WRITTEN


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
    """Find the training triples of head and tail that carry a prediction.

    They are those whose influence on the tail, beyond its rivals, is strongest. Whether the prediction is lost
    without them, --verify says: it trains again from the start. --smallest finds the shortest set that way;
    --sufficient finds triples of the head that carry the prediction over to other heads.
    """
    ctx.exit(start(job_of(given), merged(ctx, given)))


def job_of(given: dict[str, Any]) -> Job:
    """Remove the job's flags from `given` and return the job."""
    named = given["triple"]
    if named is not None and given["triples"] is None and Path(named).is_file():
        given |= {"triple": None, "triples": named}
    return job_of_flags(job_table(EXPLAIN, given, (*FILES, *FOLDERS, *WRITTEN)))


FLAGS = click_options(EXPLAIN.options)
add_options(command, FLAGS)
