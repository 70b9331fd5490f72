"""`kgops bench compare`: times and ratios of two benchmarks, or of two machines, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kgops.cli.bench_page import change_table, quartiles, ratio, spread_table
from kgops.cli.bench_show import find, is_number
from kgops.cli.output import print_json, say_lines
from kgops.cli.session import existing
from kgops.errors import Usage
from kgops.experiments.benchmark_results import (
    RULE,
    Result,
    ResultReader,
    Series,
    between,
    shared,
    side_by_side,
)
from kgops.experiments.fingerprint import differences, machine_line
from kgops.experiments.summary import NOTHING, Row
from kgops.experiments.trial_result import Spread
from kgops.present.formats import UNKNOWN, columns, seconds_text, table, wrapped
from storage.benches import Bench
from storage.database import Connection


@click.command(epilog="\b\nExample:  kgops bench compare 1 3\n          kgops bench compare t4 a100")
@click.argument("one", metavar="BENCH|WORDS")
@click.argument("other", metavar="BENCH|WORDS")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(one: str, other: str, as_json: bool) -> None:
    """Show the times and ratios of two benchmarks, variant by variant.

    Words select machines: `t4` and `a100` compare the newest results of every benchmark that both measured.
    Two ratios agree if each median lies within the other's quartiles, or if the medians differ by at most 5%.
    """
    session = existing()
    known = ResultReader().read(session.conn)
    if all(map(is_number, (one, other))):
        chosen = [tuple(_of_number(known, find(session, word)) for word in (one, other))]
        if chosen[0][0].newest.bench == chosen[0][1].newest.bench:
            raise Usage("both arguments name one benchmark", "give two different benchmarks")
        if not {row.variant for row in chosen[0][0].newest.rows} & {
            row.variant for row in chosen[0][1].newest.rows
        }:
            raise Usage(
                f"benchmarks {one} and {other} have no variant in common",
                "compare two benchmarks with shared variants",
            )
    else:
        chosen = list(shared(known, one.split(), other.split()))
        if not chosen:
            raise Usage(
                f"no benchmark was measured on two machines that match {one!r:.60} and {other!r:.60}",
                "`kgops bench show` lists benchmarks with their machines",
            )
    if as_json:
        tables = [_as_table(*pair) for pair in chosen]
        print_json(tables if len(tables) > 1 or not is_number(one) else tables[0])
        return
    for i, pair in enumerate(chosen):
        say_lines(([""] if i else []) + _lines(session.conn, *pair))


def _of_number(known: Sequence[Series], bench: Bench) -> Series:
    """This benchmark only, of its series."""
    for series in known:
        results = tuple(one for one in series.results if one.bench == bench.id)
        if results:
            return series._replace(results=results)
    raise Usage(f"benchmark {bench.id} can no longer be read", "`kgops bench show` lists benchmarks")


def _lines(conn: Connection, first: Series, second: Series) -> list[str]:
    a, b = first.newest, second.newest
    out = [f"benchmark {one.bench} · {one.name} · {machine_line(conn, one.machine)}" for one in (a, b)]
    heads = ("VARIANT", f"TIME IN {a.bench}", f"IN {b.bench}", f"{b.bench} AGAINST {a.bench}")
    times = [
        (
            one.configuration,
            *(seconds_text(side.median if side else None) for side in (one.first, one.second)),
            str(one.change),
        )
        for one in side_by_side(a, b)
    ]
    out += [
        "",
        *wrapped(between(first, second), columns()),
        "",
        *table(heads, times, right=frozenset(heads[1:3])),
    ]
    cells = [_cells(*rows) for rows in _compared(a, b)]
    if cells:
        ratios = ("VARIANT", f"FASTER IN {a.bench}", f"IN {b.bench}", "AGREE", "LESS MEMORY", "AGREE")
        out += ["", *table(ratios, cells)]
    changed = differences(a.body, b.body)
    if changed:
        out += [
            "",
            "Their fingerprints differ: a difference may come from the machines, not from the options.",
        ]
        out += [f"  {line}" for line in changed]
    return [*out, "", *wrapped(RULE, columns())]


def _compared(a: Result, b: Result) -> list[tuple[Row, Row]]:
    """Rows of the variants that both compared with a baseline."""
    pairs = ((row, b.row(row.variant)) for row in a.rows if row.variant != row.baseline)
    return [(row, other) for row, other in pairs if other is not None]


def agree(a: Spread | None, b: Spread | None) -> bool | None:
    """Return whether two ratios agree, as defined in the command's help; None if one is unknown."""
    if a is None or b is None:
        return None
    if max(a.median, b.median) <= (1 + NOTHING) * min(a.median, b.median):
        return True  # the quartiles of memory are often equal
    return a.low <= b.median <= a.high and b.low <= a.median <= b.high


def _as_table(first: Series, second: Series) -> dict[str, Any]:
    a, b = first.newest, second.newest
    return {
        "bench": [a.bench, b.bench],
        "machine": [first.hardware, second.hardware],
        "answer": between(first, second),
        "fingerprints_differ_in": differences(a.body, b.body),
        "time": [
            {
                "variant": one.configuration,
                "seconds": [spread_table(one.first), spread_table(one.second)],
                **(change_table(one.change) or {}),
            }
            for one in side_by_side(a, b)
        ],
        "row": [_row_table(*rows) for rows in _compared(a, b)],
    }


def _row_table(a: Row, b: Row) -> dict[str, Any]:
    return {
        "variant": a.variant,
        "speed": [spread_table(a.speed), spread_table(b.speed)],
        "speed_agrees": agree(a.speed, b.speed),
        "memory": [spread_table(a.memory), spread_table(b.memory)],
        "memory_agrees": agree(a.memory, b.memory),
        "verdict": [a.verdict, b.verdict],
    }


def _cells(a: Row, b: Row) -> tuple[str, ...]:
    words = {True: "yes", False: "no", None: UNKNOWN}
    return (
        a.variant,
        f"{ratio(a.speed)} ({quartiles(a.speed)})",
        f"{ratio(b.speed)} ({quartiles(b.speed)})",
        words[agree(a.speed, b.speed)],
        f"{ratio(a.memory)}, {ratio(b.memory)}",
        words[agree(a.memory, b.memory)],
    )
