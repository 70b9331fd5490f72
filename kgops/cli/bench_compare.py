"""`kgops bench compare`: ratios of two benchmarks side by side, and whether they agree."""

from __future__ import annotations

from typing import Any

import click

from kgops.cli.bench_page import quartiles, ratio
from kgops.cli.bench_show import find
from kgops.cli.output import print_json, say
from kgops.cli.session import existing
from kgops.errors import Usage
from kgops.experiments.fingerprint import differences, machine_line
from kgops.experiments.summary import Row, rows
from kgops.experiments.trial_result import Spread
from kgops.experiments.verdicts import NOTHING
from kgops.views.formats import UNKNOWN, table
from storage import measurements


@click.command(epilog="\b\nExample:  kgops bench compare 1 3")
@click.argument("one", metavar="BENCH")
@click.argument("other", metavar="BENCH")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(one: str, other: str, as_json: bool) -> None:
    """Show the ratios of two benchmarks, variant by variant.

    Two ratios agree if each median lies within the other's quartiles, or if the medians differ by at most 5%.
    """
    session = existing()
    a, b = find(session, one), find(session, other)
    if a.id == b.id:
        raise Usage("both arguments name one benchmark", "give two different benchmarks")
    left, right = ({row.variant: row for row in rows(session.conn, bench)} for bench in (a, b))
    shared = [name for name, row in left.items() if name in right and row.variant != row.baseline]
    if not shared:
        raise Usage(
            f"benchmarks {a.id} and {b.id} have no variant in common",
            "compare two benchmarks with shared variants",
        )
    changed = differences(
        measurements.fingerprint(session.conn, a.fingerprint),
        measurements.fingerprint(session.conn, b.fingerprint),
    )
    if as_json:
        print_json(
            {
                "bench": [a.id, b.id],
                "fingerprints_differ_in": changed,
                "row": [_as_table(left[name], right[name]) for name in shared],
            }
        )
        return
    for bench in (a, b):
        say(f"benchmark {bench.id} · {bench.name} · {machine_line(session.conn, bench.fingerprint)}")
    say()
    cells = [_cells(left[name], right[name]) for name in shared]
    for line in table(("VARIANT", f"FASTER IN {a.id}", f"IN {b.id}", "AGREE", "LESS MEMORY", "AGREE"), cells):
        say(line)
    if changed:
        say()
        say(
            "Their fingerprints differ: a difference in ratios may come from the machines, not from the options."
        )
        for line in changed:
            say(f"  {line}")


def agree(a: Spread | None, b: Spread | None) -> bool | None:
    """Return whether two ratios agree, as defined in the command's help; None if one is unknown."""
    if a is None or b is None:
        return None
    if max(a.median, b.median) <= (1 + NOTHING) * min(a.median, b.median):
        return True  # the quartiles of memory are often equal
    return a.low <= b.median <= a.high and b.low <= a.median <= b.high


def _as_table(a: Row, b: Row) -> dict[str, Any]:
    return {
        "variant": a.variant,
        "speed": [_spread(a.speed), _spread(b.speed)],
        "speed_agrees": agree(a.speed, b.speed),
        "memory": [_spread(a.memory), _spread(b.memory)],
        "memory_agrees": agree(a.memory, b.memory),
        "verdict": [a.verdict, b.verdict],
    }


def _spread(one: Spread | None) -> dict[str, float] | None:
    return None if one is None else {"median": one.median, "low": one.low, "high": one.high, "n": one.n}


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
