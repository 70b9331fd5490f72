"""`kgops run tracin`: find the training triples behind predictions with TracIn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kgops.cli.job_options import GroupedHelp, add_options, click_options, job_of_flags, job_table
from kgops.cli.launching import common_options, merged, start
from kgops.jobs.job import Job
from kgops.workloads.tracin.job import TRACIN
from kgops.workloads.tracin.options import FILES, FILTERS, FOLDERS, WRITTEN


class TestTripleOfThree(GroupedHelp):
    """Accepts `--test-triple a treats b` as three words, so that labels may have spaces."""

    flag = "--test-triple"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self.flag in args:
            at = args.index(self.flag) + 1
            three = args[at : at + 3]
            if len(three) == 3 and not any(part.startswith("--") for part in three):
                args = [*args[:at], "\t".join(three), *args[at + 3 :]]
        return super().parse_args(ctx, args)


@click.command(
    "tracin",
    cls=TestTripleOfThree,
    epilog="\b\nExample:  kgops run tracin --run 1 --test-triple 'usa,embassy,china' --score fisher --top-k 10",
)
@common_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Compute the influence of training triples on test triples with exact TracIn over all checkpoints kept.

    Every flag of run_tracin.py and batch_tracin_with_filtering.py works as it did there, or the run reports what
    happens instead.
    """
    ctx.exit(start(job_of(given), merged(ctx, given)))


def job_of(given: dict[str, Any]) -> Job:
    """Remove the job's flags from `given` and return the job."""
    named = given["test_triple"]
    if named is not None and given["test_triples"] is None and Path(named).is_file():
        given |= {"test_triple": None, "test_triples": named}
    table = job_table(TRACIN, given, (*FILES, *FOLDERS, *WRITTEN))
    settings, options = table["tracin"], table["options"]
    if any(name in settings for name in (*FILTERS, "test_triples")):
        options.setdefault("filtering", True)
    return job_of_flags(table)


FLAGS = click_options(TRACIN.options)
add_options(command, FLAGS)
