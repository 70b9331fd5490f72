"""Rows of a benchmark over time, and on two machines."""

from __future__ import annotations

from collections.abc import Sequence

from kgops.experiments.benchmark_results import (
    RULE,
    Change,
    Series,
    answers,
    between,
    names_apart,
    seconds_of,
    side_by_side,
)
from kgops.experiments.trial_result import Spread
from kgops.jobs.text import clock
from kgops.present.formats import seconds_text, width_of, wrapped
from kgops.present.rows import Column, Columns, Piece, Row, stacked, text_row
from screens.benchmarks_page import CHANGE_TONES

_LONGEST_NAME = 44


def answer_rows(series: Series, others: Sequence[Series], width: int) -> list[Row]:
    """What is fastest, whether it became slower, and where it was measured, too."""
    out = [Row((Piece(line, "strong"),)) for one in answers(series) for line in wrapped(one, width)]
    names = ", ".join(dict.fromkeys(one.device for one in others))
    return out + (
        [
            Row(
                (
                    Piece("=  ", "accent", "screen.compare"),
                    *text_row(f"compare with {names}", width - 3).pieces,
                )
            )
        ]
        if names
        else []
    )


def over_time_rows(series: Series, width: int) -> list[Row]:
    """All results of the fastest configuration, and all configurations of the newest result."""
    fastest = series.fastest
    if fastest is None or len(series.results) < 2:
        return []
    columns = Columns(
        [
            Column("OVER TIME", 16),
            Column("time", 9, right=True),
            Column("than before", 13),
            Column("until now", 12),
            Column("torch", 9),
            Column("kgops", 9),
            Column("quartiles", 19),
            Column("n", 3, right=True),
            Column("changed", 20, grows=True),
        ],
        width,
    )
    out = [columns.heading()]
    for step in series.over_time(fastest.row.variant):
        spread = seconds_of(step.row)
        out.append(
            columns.row(
                (
                    Piece(clock(step.result.at, "%Y-%m-%d %H:%M")),
                    Piece(seconds_text(spread.median)),
                    _changed(step.than_before, "first"),
                    _changed(step.until_now, "now"),
                    Piece(step.result.torch, "dim"),
                    Piece(step.result.commit, "dim"),
                    Piece(_quartiles(spread), "dim"),
                    Piece(str(spread.n), "dim"),
                    Piece("; ".join(step.changed), "dim"),
                )
            )
        )
    return stacked((out, _configurations(series, width)))


def _configurations(series: Series, width: int) -> list[Row]:
    rows = sorted(series.newest.rows, key=lambda one: seconds_of(one).median)
    columns = Columns(
        [
            _name_column("CONFIGURATION", [one.variant for one in rows], width - 3 * 2 - 9 - 13 - 12),
            Column("time", 9, right=True),
            Column("than before", 13),
            Column("since first", 12),
        ],
        width,
    )
    out = [columns.heading()]
    for one in rows:
        before, first = series.than_before(one.variant), series.since_first(one.variant)
        changes = (_changed(known[1] if known else None, "first") for known in (before, first))
        out.append(columns.row((Piece(one.variant), Piece(seconds_text(seconds_of(one).median)), *changes)))
    return out


def comparison_rows(first: Series, second: Series, width: int) -> list[Row]:
    """Two machines next to each other: the answer, and every configuration."""
    out = [Row((Piece(line, "strong"),)) for line in wrapped(between(first, second), width)]
    results = first.newest, second.newest
    sides = side_by_side(*results)
    heads = names_apart(first, second)
    columns = Columns(
        [
            _name_column("CONFIGURATION", [one.configuration for one in sides], width - 2 * 3 - 2 * 10 - 13),
            *(Column(f"{i}", 10, right=True) for i in (1, 2)),
            Column("2 against 1", 13),
        ],
        width,
    )
    legend = [
        text_row(f"{i}  {name}, {clock(of.at, '%Y-%m-%d')}", width, "dim")
        for i, name, of in zip((1, 2), heads, results, strict=True)
    ]
    table = [columns.heading()]
    for one in sides:
        times = (Piece(seconds_text(side.median if side else None)) for side in (one.first, one.second))
        table.append(columns.row((Piece(one.configuration), *times, _changed(one.change, ""))))
    return stacked((out, [*legend, *table], rule_rows(width)))


def rule_rows(width: int) -> list[Row]:
    return [Row((Piece(line, "dim"),)) for line in wrapped(RULE, width)]


def _changed(change: Change | None, without: str) -> Piece:
    if change is None:
        return Piece(without, "dim")
    return Piece(str(change), CHANGE_TONES.get(change.verdict, "dim"))


def _quartiles(spread: Spread) -> str:
    low, high = seconds_text(spread.low), seconds_text(spread.high)
    same = low.rpartition(" ")[2] == high.rpartition(" ")[2]
    return f"{low.rpartition(' ')[0] if same and ' ' in low else low}–{high}"


def _name_column(head: str, names: Sequence[str], room: int) -> Column:
    longest = max((width_of(one) for one in names), default=0)
    return Column(head, max(min(longest, room, _LONGEST_NAME), len(head)))
