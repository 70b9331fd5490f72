"""`kgops bench show`: list benchmarks with their fastest configurations, show one, or show which options pay."""

from __future__ import annotations

import click

from kgops.cli import bench_page
from kgops.cli.bench_claims import lines
from kgops.cli.output import print_json, say_lines, say_result, tell
from kgops.cli.session import Session, for_reading
from kgops.errors import Usage
from kgops.experiments import benchmark_results
from kgops.experiments.claims import page as claims
from kgops.present.formats import columns
from storage import benches
from storage.benches import Bench
from storage.errors import DatabaseMissing

_EXAMPLES = """\b
Example:  kgops bench show 3
          kgops bench show t4
          kgops bench show t4 --over-time
          kgops bench show claims"""


@click.command(epilog=_EXAMPLES)
@click.argument("words", metavar="[BENCH...|WORD...|claims]", nargs=-1)
@click.option(
    "--over-time", is_flag=True, help="Every result of the fastest configuration, with its changes."
)
@click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(1, 1_000_000), help="Benchmarks to list."
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(words: tuple[str, ...], over_time: bool, limit: int, as_json: bool) -> None:
    """List benchmarks with their fastest configurations, or show some.

    Words select benchmarks by name, option, GPU, CPU or host: `kgops bench show t4` says what is fastest on a T4.

    `claims` shows which options pay here, and the documents' tables next to what `kgops bench claims` measured.
    """
    of_claims = words == ("claims",)
    try:
        session = for_reading()
    except DatabaseMissing:
        if words and not of_claims:
            raise _no_such(words[0] if all(map(is_number, words)) else " ".join(words)) from None
        tell("There are no benchmarks yet. Try:  kgops bench claims --quick")
        if as_json:
            print_json([])
        return
    if of_claims:
        found = claims(session.conn)
        say_result(as_json, lambda: found.as_table(), lambda: lines(found, columns()))
        return
    if all(map(is_number, words)) and words and not over_time:
        for name in words:
            bench_page.say_bench(session.conn, find(session, name), as_json)
        return
    _list(session, words, over_time, limit, as_json)


def is_number(word: str) -> bool:
    return word.isdecimal() or word == "last"


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


def _list(session: Session, words: tuple[str, ...], over_time: bool, limit: int, as_json: bool) -> None:
    known = benchmark_results.ResultReader().read(session.conn)
    if words and all(map(is_number, words)):
        numbers = {find(session, word).id for word in words}
        chosen = [one for one in known if any(result.bench in numbers for result in one.results)]
    else:
        chosen = benchmark_results.matching(known, words)
    if words and not chosen:
        raise _no_such(" ".join(words))
    if len(chosen) > limit:
        tell(f"The newest {limit:,}; --limit lists more.")
    shown = chosen[:limit]
    if as_json:
        print_json([bench_page.as_table(one, over_time=over_time) for one in shown])
        return
    if not shown:
        tell("There are no benchmarks yet. Try:  kgops bench matrix nations.toml --vary batch_size=256,512")
        return
    in_full = bench_page.over_time_lines if over_time else bench_page.answer_lines
    lines = [line for one in shown for line in (*in_full(one), "")] if words or over_time else []
    say_lines((*(lines or [*bench_page.list_lines(shown), ""]), *bench_page.rule_lines()))
