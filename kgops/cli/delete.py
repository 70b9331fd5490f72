"""`kgops delete`: delete ended runs with their rows and folders."""

from __future__ import annotations

import sys

import click

from kgops.cli.output import say
from kgops.cli.session import for_changing
from kgops.errors import Usage
from kgops.jobs.text import one_line
from kgops.supervisor.deletion import delete_run, must_have_ended


@click.command(epilog="\b\nExample:  kgops delete 41 42 --yes")
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Delete without asking.")
def command(names: tuple[str, ...], yes: bool) -> None:
    """Delete ended runs: database rows, folders, checkpoints and results. This cannot be undone.

    RUN is a number, a label, `last`, or a filter as of `kgops runs`. `kgops delete 'older:30d state:failed'`
    deletes runs that match both.
    """
    session = for_changing(busy_timeout_s=10.0)
    wanted = session.matching(names, only=lambda run: run.ended)
    for run in wanted:
        must_have_ended(session.home, session.conn, run.id)
    if not yes:
        if not sys.stdin.isatty():
            raise Usage("cannot ask for confirmation without a terminal", "pass --yes")
        for run in wanted:
            say(f"run {run.id}  {run.state}  {one_line(run.label, 60)}")
        click.confirm(f"Delete {len(wanted)} run(s) with their folders?", abort=True)
    for run in wanted:
        left = delete_run(session.home, session.conn, run.id)
        say(f"run {run.id} deleted" + (f"; its files are left in {left}" if left is not None else ""))
