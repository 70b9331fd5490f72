"""`kgops stop`: send SIGTERM to runs, wait, then kill their process trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kgops.cli.job_options import FiniteRange
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import for_changing
from kgops.errors import KgopsError
from kgops.settings import find_home
from kgops.supervisor.control import stop_run, wait_for_end
from storage import runs

if TYPE_CHECKING:
    from kgops.hosts.registry import Host


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
    """Stop runs: SIGTERM first, so that they can write a checkpoint; SIGKILL after the grace period.

    lab2:17 is run 17 of host lab2."""
    far = [name for name in names if ":" in name]
    near = [name for name in names if ":" not in name]
    tables = [
        *(_stop_here(near, grace, no_wait=no_wait) if near else []),
        *(_stop_there(far, grace, no_wait=no_wait) if far else []),
    ]
    if as_json:
        print_json(tables)
        return
    for one in tables:
        name = f"{one['host']}:{one['id']}" if "host" in one else one["id"]
        say(f"run {name}: {'asked to stop' if no_wait and one['state'] not in runs.ENDED else one['state']}")


def _stop_here(names: list[str], grace: float | None, *, no_wait: bool) -> list[dict[str, Any]]:
    session = for_changing()
    wanted = [session.run(name) for name in names]
    for run in wanted:
        stop_run(session.home, session.conn, run, grace)
    ended = [run if no_wait else wait_for_end(session.home, session.conn, run.id, tell) for run in wanted]
    return [{"id": run.id, "state": run.state, "reason": run.reason} for run in ended]


def _stop_there(names: list[str], grace: float | None, *, no_wait: bool) -> list[dict[str, Any]]:
    """Host by host. What was stopped before a host fails is said."""
    from kgops.hosts import registry, run_actions

    home = find_home()
    hosts = registry.read(home)
    wanted: dict[Host, list[str]] = {}
    for name in names:
        host, number = run_actions.split_name(name, hosts)
        wanted.setdefault(host, []).append(number)
    tables: list[dict[str, Any]] = []
    try:
        for host, numbers in wanted.items():
            stopped = run_actions.stop(home, host, numbers, grace, waits=not no_wait)
            tables += [{"host": host.name, **one._asdict()} for one in stopped]
    except KgopsError:
        for one in tables:
            tell(f"run {one['host']}:{one['id']}: {one['state']}")
        raise
    return tables
