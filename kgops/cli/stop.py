"""`kgops stop`: send SIGTERM to runs, wait, then kill their process trees."""

from __future__ import annotations

import click

from kgops.cli.job_options import FiniteRange
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import for_changing
from kgops.supervisor.control import stop_run, wait_for_end


@click.command(epilog="\b\nExample:  kgops stop 42 --grace 60")
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--grace",
    type=FiniteRange(0),
    help="Seconds between SIGTERM and SIGKILL; default: from the job.",
)
@click.option("--no-wait", is_flag=True, help="Return without waiting for the runs to end.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(names: tuple[str, ...], grace: float | None, no_wait: bool, as_json: bool) -> None:
    """Stop runs: SIGTERM first, so that they can write a checkpoint; SIGKILL after the grace period."""
    session = for_changing()
    wanted = [session.run(name) for name in names]
    for run in wanted:
        stop_run(session.home, session.conn, run, grace)
    ended = [run if no_wait else wait_for_end(session.home, session.conn, run.id, tell) for run in wanted]
    if as_json:
        print_json([{"id": run.id, "state": run.state, "reason": run.reason} for run in ended])
        return
    for run in ended:
        say(f"run {run.id}: {'asked to stop' if no_wait and not run.ended else run.state}")
