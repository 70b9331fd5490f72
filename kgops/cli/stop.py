"""`kgops stop`: send SIGTERM to runs, wait, then kill their process trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kgops.cli.job_options import FiniteRange
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import for_changing
from kgops.errors import KgopsError
from kgops.settings import find_home
from kgops.supervisor.control import stop_by_folder, stop_run, wait_for_end
from storage import runs
from storage.errors import DatabaseDamaged, StorageError

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
    far = _by_host([name for name in names if ":" in name])  # before anything is stopped: a name may be wrong
    near = [name for name in names if ":" not in name]
    tables: list[dict[str, Any]] = []
    try:
        if near:
            tables += _stop_here(near, grace, no_wait=no_wait)
        for host, numbers in far.items():
            tables += _stop_there(host, numbers, grace, no_wait=no_wait)
    except (KgopsError, StorageError):
        for one in tables:
            tell(_line(one, no_wait=no_wait))
        raise
    if as_json:
        print_json(tables)
        return
    for one in tables:
        say(_line(one, no_wait=no_wait))


def _line(one: dict[str, Any], *, no_wait: bool) -> str:
    name = f"{one['host']}:{one['id']}" if "host" in one else one["id"]
    return f"run {name}: {'asked to stop' if no_wait and one['state'] not in runs.ENDED else one['state']}"


def _stop_here(names: list[str], grace: float | None, *, no_wait: bool) -> list[dict[str, Any]]:
    try:
        return _stop_recorded(names, grace, no_wait=no_wait)
    except DatabaseDamaged as error:
        tell(f"Warning: {error.message}")
        tell(f"Hint: {error.hint}")
    found = [stop_by_folder(find_home(), name, grace, waits=not no_wait) for name in names]
    if not no_wait and any(one.state is None for one in found):
        tell("the next command records the end of a run once the database can be read again")
    return [{"id": one.number, "state": one.state or "stopped", "reason": one.reason} for one in found]


def _stop_recorded(names: list[str], grace: float | None, *, no_wait: bool) -> list[dict[str, Any]]:
    session = for_changing()
    wanted = [session.run(name) for name in names]
    for run in wanted:
        stop_run(session.home, session.conn, run, grace)
    ended = [run if no_wait else wait_for_end(session.home, session.conn, run.id, tell) for run in wanted]
    return [{"id": run.id, "state": run.state, "reason": run.reason} for run in ended]


def _by_host(names: list[str]) -> dict[Host, list[str]]:
    if not names:
        return {}
    from kgops.hosts import registry, run_actions

    hosts = registry.read(find_home())
    wanted: dict[Host, list[str]] = {}
    for name in names:
        host, number = run_actions.split_name(name, hosts)
        wanted.setdefault(host, []).append(number)
    return wanted


def _stop_there(
    host: Host, numbers: list[str], grace: float | None, *, no_wait: bool
) -> list[dict[str, Any]]:
    from kgops.hosts import run_actions

    stopped = run_actions.stop(find_home(), host, numbers, grace, waits=not no_wait)
    return [{"host": host.name, **one._asdict()} for one in stopped]
