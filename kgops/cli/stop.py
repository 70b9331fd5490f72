"""`kgops stop`, `resume` and `delete`: end runs, go on with ended ones, or remove them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kgops.cli.groups import OfRuns
from kgops.cli.job_options import FiniteRange
from kgops.cli.output import say, say_result, tell
from kgops.cli.session import Session, for_changing, for_writing, is_far, no_runs
from kgops.errors import KgopsError, Usage
from kgops.jobs.files import size_of
from kgops.jobs.text import one_line
from kgops.settings import find_home
from kgops.streams import tolerate_output_errors
from kgops.supervisor.control import ANSWERS_WITHIN_S, ask_to_stop, stop_by_folder, stop_run, wait_for_end
from storage import runs
from storage.database import open_reader
from storage.errors import (
    DatabaseBusy,
    DatabaseDamaged,
    DatabaseMissing,
    DatabaseNewer,
    DatabaseOutOfReach,
    StorageError,
)
from storage.runs import Run

if TYPE_CHECKING:
    from kgops.hosts.registry import Host

T = TypeVar("T")
E = TypeVar("E")
_BUSY_S = 1.0  # each wait for the database, of the ten seconds in which a stop answers


@click.command("stop", cls=OfRuns, epilog="\b\nExample:  kgops stop 42 --grace 60")
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

    The state of a stopped run is `cancelled`. RUN is a number, a label, `last`, `all`, or a filter as of `kgops
    runs`. `kgops stop tag:sweep-7` stops its runs that have not ended. lab2:17 is run 17 of host lab2."""
    far = _by_host(
        [name for name in names if is_far(name)]
    )  # before anything is stopped: a name may be wrong
    near = [name for name in names if not is_far(name)]
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
    say_result(as_json, lambda: tables, lambda: (_line(one, no_wait=no_wait) for one in tables))


def _line(one: dict[str, Any], *, no_wait: bool) -> str:
    name = f"{one['host']}:{one['id']}" if "host" in one else one["id"]
    return f"run {name}: {'asked to stop' if no_wait and one['state'] not in runs.ENDED else one['state']}"


def _stop_here(names: list[str], grace: float | None, *, no_wait: bool) -> list[dict[str, Any]]:
    until = time.monotonic() + ANSWERS_WITHIN_S  # and the grace
    try:
        return _stop_recorded(names, grace, until, no_wait=no_wait)
    except DatabaseMissing as error:
        raise no_runs() from error
    except (DatabaseBusy, DatabaseDamaged, DatabaseNewer, DatabaseOutOfReach) as error:
        tell(f"Warning: {error.message}")
        tell(f"Hint: {error.hint}")
        problem = error
    home = find_home()
    found = [stop_by_folder(home, name, grace, until=None, problem=problem) for name in names]
    if not no_wait:
        found = _each(names, lambda name: stop_by_folder(home, name, grace, until=until, problem=problem))
        if any(one.state is None for one in found):
            tell("the next command records the end of a run once the database is readable")
    return [{"id": one.number, "state": one.state or "stopped", "reason": one.reason} for one in found]


def _stop_recorded(
    names: list[str], grace: float | None, until: float, *, no_wait: bool
) -> list[dict[str, Any]]:
    home = find_home()
    reader = open_reader(home.database, busy_timeout_s=_BUSY_S)
    before = Session(home, reader)
    wanted = before.matching(names, only=lambda run: not run.ended)
    # First of all: whatever fails below, the requests are in the folders.
    graces = [ask_to_stop(reader, before.folder(run), run.id, grace) for run in wanted if not run.ended]
    session = for_changing(busy_timeout_s=_BUSY_S)
    for run in wanted:
        stop_run(home, session.conn, run, grace)
    until += max(graces, default=0.0)

    def wait(run: Run) -> Run:
        left_s = until - time.monotonic()
        return wait_for_end(home, session.conn, run.id, tell, stopped_within_s=left_s)

    ended = wanted if no_wait else _each(wanted, wait)
    return [{"id": run.id, "state": run.state, "reason": run.reason} for run in ended]


def _each(asked: list[T], wait: Callable[[T], E]) -> list[E]:
    """What `wait` returns for each. If one run does not end, the others are waited for first."""
    ended: list[E] = []
    late: KgopsError | None = None
    for one in asked:
        try:
            ended.append(wait(one))
        except KgopsError as error:
            late = late or error
    if late is not None:
        raise late
    return ended


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


@click.command(epilog="\b\nExample:  kgops resume 42 --detach")
@click.argument("name", metavar="RUN")
@click.option("--detach", is_flag=True, help="Print the run number and return at once.")
@click.pass_context
def resume(ctx: click.Context, name: str, detach: bool) -> None:
    """Continue a run with a new attempt: one that is interrupted, cancelled (by `stop`), failed or out_of_memory.

    The attempt continues from the last checkpoint if the workload writes checkpoints. An exec command restarts,
    with KGOPS_ATTEMPT increased. lab2:17 is run 17 of host lab2, where it goes on without being followed."""
    if is_far(name):
        from kgops.hosts.run_actions import placed, resume_there

        home, host, number = placed(name)
        say(f"{host.name}:{resume_there(home, host, number)}")
        return
    # What starts and follows a run takes long to import, and `stop` has to answer.
    from kgops.cli.follow import follow
    from kgops.supervisor.launch import resume as resume_run

    session = for_writing()
    run = session.run(name)
    log = session.folder(run).log
    log_from = size_of(log)
    resume_run(session.home, session.conn, run.id, lambda text: tell(f"Warning: {text}."))
    tolerate_output_errors()
    if detach:
        say(str(run.id))
        return
    ctx.exit(follow(session, run.id, log_from=log_from))


@click.command(cls=OfRuns, epilog="\b\nExample:  kgops delete 41 42 --yes")
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Delete without asking.")
def delete(names: tuple[str, ...], yes: bool) -> None:
    """Delete ended runs: database rows, folders, checkpoints and results. This cannot be undone.

    RUN is a number, a label, `last`, `all`, or a filter as of `kgops runs`. `kgops delete 'older:30d state:failed'`
    deletes runs that match both. Without the quotes it deletes runs that match either.
    """
    from kgops.supervisor.deletion import delete_run, must_have_ended

    session = for_changing(busy_timeout_s=10.0)
    wanted = session.matching(names, only=lambda run: run.ended)
    for run in wanted:
        must_have_ended(session.home, session.conn, run.id)
    if not yes:
        for run in wanted:
            say(f"run {run.id}  {run.state}  {one_line(run.label, 60)}")
        if not sys.stdin.isatty():
            raise Usage("cannot ask for confirmation without a terminal", "pass --yes to delete these runs")
        click.confirm(f"Delete {len(wanted)} run(s) with their folders?", abort=True)
    for run in wanted:
        left = delete_run(session.home, session.conn, run.id)
        say(f"run {run.id} deleted" + (f"; its files are left in {left}" if left is not None else ""))
