"""A benchmark as people read it on a terminal."""

from __future__ import annotations

import sys

from kgops.cli.claims_page import verdicts
from kgops.cli.output import UNKNOWN, amount, columns, moment, table, wrapped
from kgops.experiments.fingerprint import machine_line
from kgops.experiments.pairs import Spread
from kgops.experiments.summary import Row, rows
from kgops.experiments.verdicts import RULE, shown
from storage import benches
from storage.benches import Bench
from storage.database import Connection

__all__ = ["page", "quartiles", "ratio"]


def page(conn: Connection, bench: Bench) -> list[str]:
    found = rows(conn, bench)
    pairs = benches.pairs(conn, bench.id)
    first = found[0]
    state = "" if bench.ended_at else f" · unfinished: {len(pairs)} of {_planned(bench)} pairs"
    out = [
        f"benchmark {bench.id} · {bench.name} · {moment(bench.begun_at)}{state}",
        *wrapped(f"command      {bench.command}", columns(), "  "),
        *wrapped(f"fingerprint  {machine_line(conn, bench.fingerprint)}", columns(), "  "),
        *wrapped(f"time         {first.seconds_of or UNKNOWN}", columns(), "  "),
        *wrapped(f"memory       {first.memory_of or UNKNOWN}", columns(), "  "),
        "",
        *_table(found),
    ]
    out += _notes(found)
    claimed = verdicts(conn, bench)
    out += ["", "What was claimed:", "", *claimed] if claimed else []
    rule = f"FASTER, LESS MEMORY: {first.variant} over the variant, pair by pair; medians. {RULE}"
    return [*out, "", *wrapped(rule, columns())]


def _table(found: list[Row]) -> list[str]:
    """A verdict stands in its row, or on a narrow terminal below it: it is what people came for."""
    heads = ("VARIANT", "TIME", "FASTER", "QUARTILES", "N", "MEMORY", "LESS MEMORY")
    right = frozenset({"TIME", "FASTER", "N", "MEMORY"})
    cells = [_cells(row) for row in found]
    told = [shown(row.verdict, row.why) for row in found]
    whole = table(
        (*heads, "VERDICT"), [(*row, word) for row, word in zip(cells, told, strict=True)], right=right
    )
    before = whole[0].index("VERDICT")
    if not sys.stdout.isatty() or before + max(map(len, told)) <= columns():
        return whole
    head, *lines = table(
        (*heads[:-1], "LESS"), [(*row[:-1], row[-1].split(" ")[0]) for row in cells], right=right
    )
    out = [head]
    for line, word in zip(lines, told, strict=True):
        out += [line, *wrapped(word, columns(), "    ")]
    return out


def ratio(one: Spread | None) -> str:
    return UNKNOWN if one is None else f"{one.median:.2f}×"


def quartiles(one: Spread | None) -> str:
    return UNKNOWN if one is None else f"{one.low:.2f}–{one.high:.2f}"


def _cells(row: Row) -> tuple[str, ...]:
    alone = row.variant == row.baseline
    return (
        row.variant,
        amount(row.seconds.median if row.seconds else None, "s"),
        "1" if alone else ratio(row.speed),
        "" if alone else quartiles(row.speed),
        str(row.seconds.n) if alone and row.seconds else str(row.speed.n) if row.speed else "0",
        amount(row.memory_mib.median if row.memory_mib else None, "MiB"),
        "" if alone else f"{ratio(row.memory)} ({quartiles(row.memory)})" if row.memory else UNKNOWN,
    )


def _notes(found: list[Row]) -> list[str]:
    out = []
    for row in found[1:]:
        told = [f"{name} was not in effect: {why}" for name, why in row.unapplied.items()]
        for name, (before, after) in row.quality.items():
            if after is not None and before != after:
                told.append(f"{name} {amount(before)} → {amount(after)}")
        if told:
            out += [f"  {row.variant}: {'; '.join(told)}"]
    busy = [row.busy for row in found if row.busy is not None]
    if busy and max(busy) > 0.15:
        out += [f"  not quiet: others used {max(busy):.0%} of the CPUs before the rounds (median)"]
    return ["", *out] if out else []


def _planned(bench: Bench) -> int:
    rounds: int = bench.plan["rounds"]
    return rounds * (len(bench.plan["variants"]) - 1)
