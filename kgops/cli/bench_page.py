"""Format a benchmark for the terminal: variants, times, memory, ratios and verdicts."""

from __future__ import annotations

import sys

from kgops.experiments.fingerprint import machine_line
from kgops.experiments.summary import Row, rows
from kgops.experiments.trial_result import Spread
from kgops.experiments.verdicts import RULE, shown
from kgops.present.formats import UNKNOWN, amount, columns, local_time, table, wrapped
from storage import benches
from storage.benches import Bench
from storage.database import Connection


def page(conn: Connection, bench: Bench) -> list[str]:
    results = rows(conn, bench)
    pairs = benches.pairs(conn, bench.id)
    first = results[0]
    state = "" if bench.ended_at else f" · unfinished: {len(pairs)} of {_planned(bench)} pairs"
    out = [
        f"benchmark {bench.id} · {bench.name} · {local_time(bench.begun_at)}{state}",
        *wrapped(f"command      {bench.command}", columns(), "  "),
        *wrapped(f"fingerprint  {machine_line(conn, bench.fingerprint)}", columns(), "  "),
        *wrapped(f"time         {first.seconds_of or UNKNOWN}", columns(), "  "),
        *wrapped(f"memory       {first.memory_of or UNKNOWN}", columns(), "  "),
        "",
        *_table(results),
    ]
    out += _notes(results)
    rule = f"FASTER, LESS MEMORY: medians over pairs of {first.variant} divided by the variant. {RULE}"
    return [*out, "", *wrapped(rule, columns())]


def _table(results: list[Row]) -> list[str]:
    """Return the table of variants. On a narrow terminal each verdict goes below its row instead of being cut."""
    heads = ("VARIANT", "TIME", "FASTER", "QUARTILES", "N", "MEMORY", "LESS MEMORY")
    right = frozenset({"TIME", "FASTER", "N", "MEMORY"})
    cells = [_cells(row) for row in results]
    verdict_texts = [shown(row.verdict, row.why) for row in results]
    wide = table(
        (*heads, "VERDICT"),
        [(*row, word) for row, word in zip(cells, verdict_texts, strict=True)],
        right=right,
    )
    before = wide[0].index("VERDICT")
    if not sys.stdout.isatty() or before + max(map(len, verdict_texts)) <= columns():
        return wide
    head, *lines = table(
        (*heads[:-1], "LESS"), [(*row[:-1], row[-1].split(" ")[0]) for row in cells], right=right
    )
    out = [head]
    for line, word in zip(lines, verdict_texts, strict=True):
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


def _notes(results: list[Row]) -> list[str]:
    out = []
    for row in results[1:]:
        remarks = [f"{name} was not applied: {why}" for name, why in row.unapplied.items()]
        for name, (before, after) in row.quality.items():
            if after is not None and before != after:
                remarks.append(f"{name} {amount(before)} → {amount(after)}")
        if remarks:
            out += [f"  {row.variant}: {'; '.join(remarks)}"]
    busy = [row.busy for row in results if row.busy is not None]
    if busy and max(busy) > 0.15:
        out += [
            f"  machine not idle: other processes used {max(busy):.0%} of the CPUs before the rounds (median)"
        ]
    return ["", *out] if out else []


def _planned(bench: Bench) -> int:
    rounds: int = bench.plan["rounds"]
    return rounds * (len(bench.plan["variants"]) - 1)
