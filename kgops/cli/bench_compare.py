"""`kgops bench compare`: two benchmarks side by side, and whether they say the same."""

from __future__ import annotations

from typing import Any

import click

from kgops.cli.bench_page import quartiles, ratio
from kgops.cli.bench_show import find
from kgops.cli.output import UNKNOWN, print_json, say, table
from kgops.cli.session import existing
from kgops.errors import Usage
from kgops.experiments.fingerprint import differences, machine_line
from kgops.experiments.pairs import Spread
from kgops.experiments.summary import Row, rows
from kgops.experiments.verdicts import NOTHING
from storage import measurements


@click.command(epilog="\b\nExample:  kgops bench compare 3 4")
@click.argument("one", metavar="BENCH")
@click.argument("other", metavar="BENCH")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(one: str, other: str, as_json: bool) -> None:
    """Show the ratios of two benchmarks, variant by variant.

    They agree where each median lies within the quartiles of the other, or the two within a twentieth of each other.
    """
    session = existing()
    a, b = find(session, one), find(session, other)
    if a.id == b.id:
        raise Usage("a benchmark was named twice")
    left, right = ({row.variant: row for row in rows(session.conn, bench)} for bench in (a, b))
    shared = [name for name, row in left.items() if name in right and row.variant != row.baseline]
    if not shared:
        raise Usage(f"benchmarks {a.id} and {b.id} have no variant in common", "compare two of the same plan")
    apart = differences(
        measurements.fingerprint(session.conn, a.fingerprint),
        measurements.fingerprint(session.conn, b.fingerprint),
    )
    if as_json:
        print_json(
            {
                "bench": [a.id, b.id],
                "fingerprints_differ_in": apart,
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
    if apart:
        say()
        say("Their fingerprints differ: that the ratios do says nothing of what was set.")
        for line in apart:
            say(f"  {line}")


def agree(a: Spread | None, b: Spread | None) -> bool | None:
    """Whether they say the same, as the command's help has it; None where one is not known."""
    if a is None or b is None:
        return None
    if max(a.median, b.median) <= (1 + NOTHING) * min(a.median, b.median):
        return True  # quartiles of a memory are often one number
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
