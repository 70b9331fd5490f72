"""`kgops bench show`: list benchmarks, show one, or show which options pay."""

from __future__ import annotations

from dataclasses import asdict

import click

from kgops.cli.bench_page import page
from kgops.cli.claims_page import lines
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import Session, for_reading
from kgops.errors import Usage
from kgops.experiments.claims import page as claims
from kgops.jobs.text import one_line
from kgops.views.formats import columns, local_time, table
from storage import benches
from storage.benches import Bench
from storage.errors import DatabaseMissing

_EXAMPLES = """\b
Example:  kgops bench show 3
          kgops bench show claims"""


@click.command(epilog=_EXAMPLES)
@click.argument("words", metavar="[BENCH...|claims]", nargs=-1)
@click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(1, 1_000_000), help="Benchmarks to list."
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List benchmarks, or show some.

    `claims` shows which options pay here, and the documents' tables beside what `kgops bench claims` measured.
    """
    of_claims = words == ("claims",)
    try:
        session = for_reading()
    except DatabaseMissing:
        if words and not of_claims:
            raise _no_such(words[0]) from None
        tell("There are no benchmarks yet. Try:  kgops bench claims --quick")
        if as_json:
            print_json([])
        return
    if of_claims:
        found = claims(session.conn)
        if as_json:
            print_json(found.as_table())
            return
        for line in lines(found, columns()):
            say(line)
        return
    if words:
        for name in words:
            _show(session, find(session, name), as_json)
        return
    _list(session, limit, as_json)


def find(session: Session, name: str) -> Bench:
    """Return the benchmark with this number, or the newest for `last`."""
    newest = benches.newest(session.conn, limit=1)
    if name == "last" and newest:
        return newest[0]
    bench = benches.get(session.conn, int(name)) if name.isdecimal() and len(name) < 18 else None
    if bench is None:
        raise _no_such(name)
    return bench


def _no_such(name: str) -> Usage:
    return Usage(f"there is no benchmark {name!r:.60}", "`kgops bench show` lists benchmarks")


def _show(session: Session, bench: Bench, as_json: bool) -> None:
    if as_json:
        from kgops.experiments.export import as_table

        print_json(as_table(session.conn, bench))
        return
    for line in page(session.conn, bench):
        say(line)


def _state(session: Session, bench: Bench) -> str:
    if not bench.ended_at:
        return "unfinished"
    return "ended" if benches.pairs(session.conn, bench.id) else "failed"  # its baseline did


def _list(session: Session, limit: int, as_json: bool) -> None:
    found = benches.newest(session.conn, limit=limit + 1)
    benchmarks = found[:limit]
    if len(found) > limit:
        tell(f"The newest {limit:,}; --limit lists more.")
    if as_json:
        print_json(
            [{name: value for name, value in asdict(one).items() if name != "plan"} for one in benchmarks]
        )
        return
    if not benchmarks:
        tell("There are no benchmarks yet. Try:  kgops bench matrix nations.toml --vary batch_size=256,512")
        return
    rows = [
        (
            str(one.id),
            local_time(one.begun_at),
            _state(session, one),
            str(len(one.plan["variants"])),
            str(one.plan["rounds"]),
            one.fingerprint,
            one_line(one.name),
        )
        for one in benchmarks
    ]
    heads = ("BENCH", "STARTED", "STATE", "VARIANTS", "ROUNDS", "FINGERPRINT", "NAME")
    for line in table(heads, rows, right=frozenset({"BENCH", "VARIANTS", "ROUNDS"})):
        say(line)
