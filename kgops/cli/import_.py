"""`kgops import` and `kgops pull`: bring runs here, from exports, folders and results of scripts, or from a host."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgops.cli.output import print_json, say, tell
from kgops.cli.session import Session, for_writing
from kgops.errors import KgopsError, Unavailable
from kgops.interchange.import_folder import Pulled
from kgops.interchange.importing import Imported, import_from
from kgops.jobs.files import read_table
from kgops.jobs.text import one_line
from kgops.settings import Home
from kgops.supervisor.run_folder import RunFolder

if TYPE_CHECKING:  # `import` needs no connections
    from kgops.hosts.registry import Host


@click.command(
    epilog="\b\nExample:  kgops import run-12.json ~/old/.kgops/runs/0042-train-nations results/robokop"
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--twice", is_flag=True, help="Import runs that are in the database already once more.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(paths: tuple[Path, ...], twice: bool, as_json: bool) -> None:
    """Import runs; `kgops show` names the source of each.

    \b
    run.json        written by `kgops export --to json` on any machine: the whole record
    run folder      of another home: its files are copied; tags, notes, exit codes of attempts, memory
                    curves and peaks are only in exports
    result folder   of the original scripts or --output-dir: training_history.json, config.json,
                    test_results.json, batch_tracin_summary.json, TracIn CSV; other values stay unknown
    """
    session = for_writing()
    imported = []
    for path in paths:
        for one in import_from(session.home, session.conn, path, again=twice):
            imported.append(one)
            say_imported(one, as_json=as_json)
    if as_json:
        print_json([asdict(one) for one in imported])


def say_imported(one: Imported, source: str = "", *, as_json: bool) -> None:
    """`source`: the origin, if it is no path of the command. Also next to JSON, which a later failure leaves out."""
    what = one_line(one.what, 160)
    if one.number is not None:
        (tell if as_json else say)(f"run {one.number}: imported {source}{what}")
        if one.known:
            tell(f"Note: run {', '.join(map(str, one.known))} is a copy of the same run, imported earlier")
    else:
        numbers = ", ".join(map(str, one.known))
        tell(f"already imported as run {numbers}: {what} (--twice imports it once more)")
    for trouble in one.troubles:
        tell(f"Warning: {one_line(trouble)}")


@click.command(epilog="\b\nExample:  kgops pull lab2:17")
@click.argument("names", metavar="HOST:RUN...", nargs=-1, required=True)
@click.option("--twice", is_flag=True, help="Import a run that is in the database already once more.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def pull(names: tuple[str, ...], twice: bool, as_json: bool) -> None:
    """Import runs of other hosts with log, results and checkpoints. A run must have ended; it stays there as well.

    Its tags, notes, memory peaks and curves come with it; exit codes of single attempts stay there."""
    import tempfile

    from kgops.hosts import registry
    from kgops.hosts.run_actions import split_name

    session = for_writing()
    hosts = registry.read(session.home)
    wanted = [split_name(name, hosts) for name in names]
    imported: list[Imported] = []
    for host, number in wanted:
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=session.home.path) as folder:
            target = Path(folder) / "run"
            target.mkdir(mode=0o700)
            _fetch(session.home, host, number, target)
            pulled = _pulled(session, host, number, RunFolder(target))
            (one,) = import_from(session.home, session.conn, target, again=twice, pulled=pulled)
        imported.append(one)
        say_imported(one, f"from {host.name}: ", as_json=as_json)
    if as_json:
        print_json([asdict(one) for one in imported])


def _pulled(session: Session, host: Host, number: str, folder: RunFolder) -> Pulled:
    """With the run's number there, also of the last, and with what its files do not hold."""
    from kgops.hosts.archive import fetch_record

    # It was imported there: this is all of its record, and its plan has another number.
    if folder.record.exists():
        return Pulled(f"{host.name}:{number}")
    plan = read_table(folder.plan)
    if number == "last" and isinstance(plan.get("number"), int):
        number = str(plan["number"])
    name = f"{host.name}:{number}"
    try:
        record = fetch_record(session.home, session.conn, host, number)
    except KgopsError as error:
        tell(f"Warning: tags, notes, memory peaks and curves of {name} do not come with it: {error.message}")
        return Pulled(name)
    is_same = all(record.run[key] == plan.get(key) for key in ("submitted_at", "workload", "label"))
    return Pulled(name, record if is_same else None)


def _fetch(home: Home, host: Host, number: str, target: Path) -> None:
    from kgops.hosts.archive import NoSpace, unpack
    from kgops.hosts.connection import ByteStream, Connection, Limits, meaning_of

    words = ("export", number, "--to", "tar", "--output", "-")
    connection = Connection(home, host, words, Limits())
    stream = ByteStream(connection)
    problem: KgopsError | None = None
    try:
        unpack(stream, target)
        stream.drain()
    except KgopsError as error:
        problem = error
    finally:
        stream.close()
        code = connection.close(has_ended=stream.has_ended)
    if isinstance(problem, NoSpace):  # which ends the other side, too
        raise problem
    if code not in (0, None):  # what it says there explains more than an archive that is not whole
        message, hint = meaning_of(code, connection.errors, host)
        raise Unavailable(f"{host.name}: {message}", hint)
    if problem is not None:
        raise Unavailable(f"{host.name}: {problem.message}", problem.hint)
