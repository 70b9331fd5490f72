"""Rows of one benchmark: ratio bars, curves, and the command to repeat it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kgops.cli.bench_claims import lines as option_lines
from kgops.experiments.benchmark_results import RULE as CHANGE_RULE
from kgops.experiments.summary import RULE, Verdict
from kgops.experiments.trial_result import Spread
from kgops.jobs.text import one_line
from kgops.present.formats import UNKNOWN, amount, fitted, padded, width_of
from kgops.present.rows import Column, Columns, Piece, Row, stacked, text_row
from screens.benchmark_over_time import answer_rows, over_time_rows
from screens.benchmarks_page import by_size
from screens.widgets.bar import axis, ratio_bar, scale_of

if TYPE_CHECKING:
    from kgops.experiments.benchmark_reader import Detail
    from kgops.experiments.benchmark_results import Series
    from kgops.experiments.summary import Row as Measured

SIGNS: dict[Verdict, tuple[str, str]] = {
    "effective": ("✓", "good"),
    "no effect": ("·", "dim"),
    "harmful": ("✗", "bad"),
    "baseline": ("·", "dim"),
    "steady": ("·", "dim"),
    "unsteady": ("!", "warn"),
    "not measured yet": ("?", "dim"),
    "cannot be tested here": ("?", "dim"),
}
_ANSWERS = {"→ use": "good", "→ if": "good", "→ changes": "warn", "→ do not": "bad", "not measured": "dim"}
_BARS = {"good": "good", "warn": "warn", "bad": "bad", "dim": "text"}
_MEASURED, _N, _TIMES = 25, 3, 8  # columns, at most
_NARROWEST_BAR, _WIDEST_BAR = 13, 60
_LONGEST_NAME = 34


class _VariantLine(NamedTuple):
    """A variant compared with the baseline, with its verdict."""

    name: str
    verdict: Verdict
    measured: str
    ratio: Spread | None
    n: int
    speed: Spread | None
    memory: Spread | None
    words: tuple[str, ...]


def detail_rows(detail: Detail, others: Sequence[Series], width: int) -> list[Row]:
    """`others`: the same benchmark on other machines."""
    series = detail.series
    sections = [
        _head(detail, others, width),
        over_time_rows(series, width) if series is not None else [],
        _options(detail, width),
        _compared([_of_row(one) for one in detail.rows], width),
        *(by_size(axis_name, curves, width) for axis_name, curves in detail.curves),
        _conditions(detail, width),
    ]
    return stacked(sections)


def _head(detail: Detail, others: Sequence[Series], width: int) -> list[Row]:
    out = [text_row(detail.name, width, "strong")]
    if detail.series is not None:
        out += answer_rows(detail.series, others, width)
    if detail.state:
        out.append(Row((Piece("! ", "warn"), *text_row(detail.state, width - 2, "warn").pieces)))
    first, *more = _wrapped(detail.command, width - 3, "")
    out.append(Row((Piece("y  ", "accent", "screen.copy"), Piece(first, "dim"))))
    return out + [Row((Piece(f"   {line}", "dim"),)) for line in more]


def _options(detail: Detail, width: int) -> list[Row]:
    """The page of `kgops bench show claims`, with the answers in colour."""
    if detail.options is None:
        return []
    first, *lines = option_lines(detail.options, width)
    return [text_row(first, width, "head"), *(_option(fitted(line, width)) for line in lines)]


def _option(line: str) -> Row:
    if line.endswith("ANSWER") or " MEASURED (" in line:
        return Row((Piece(line, "head"),))
    mark = next((mark for mark in _ANSWERS if mark in line), None)
    at = line.rfind(mark) if mark is not None else len(line)
    tone = _ANSWERS.get(mark or "", "text")
    return Row((Piece(line[:at], "dim" if tone == "dim" else "text"), Piece(line[at:], tone)))


# --- variants beside the baseline ---


def _of_row(one: Measured) -> _VariantLine:
    words = [one.why] if one.why else []
    words += [f"{name} was not applied: {why}" for name, why in one.unapplied.items()]
    if one.seconds is not None:
        words.append(amount(one.seconds.median, "s"))
    if one.memory_mib is not None:
        words.append(amount(one.memory_mib.median, "MiB"))
    words += [
        f"{name} {amount(before)} → {amount(after)}"
        for name, (before, after) in one.quality.items()
        if before != after
    ]
    n = one.speed.n if one.speed else 0
    return _VariantLine(
        *(one.variant, one.verdict, _spread(one.speed), one.speed, n),
        *(one.speed, one.memory, tuple(words)),
    )


def _compared(lines: Sequence[_VariantLine], width: int) -> list[Row]:
    """Rows of each variant: values with a bar, then its verdict."""
    if not lines:
        return []
    shown = min(max(len("measured here"), *(width_of(one.measured) for one in lines)), _MEASURED)
    fixed = 2 + 2 + shown + 2 + _N + 2 + _TIMES + (2 + _TIMES if width >= 100 else 0)
    longest = max(width_of(one_line(one.name)) for one in lines)
    name = min(max(longest, 8), max(width - fixed - 2 - _NARROWEST_BAR, 12), _LONGEST_NAME)
    columns = Columns(
        [
            Column("VARIANT", name + 2),
            Column("measured here", shown),
            Column("n", _N, right=True),
            Column("memory", _TIMES, right=True),
            *([Column("speed", _TIMES, right=True)] if width >= 100 else []),
        ],
        width,
    )
    room = min(width - fixed - name - 2, _WIDEST_BAR)
    scale = scale_of((one.ratio for one in lines), room) if room >= _NARROWEST_BAR else None
    head = columns.heading()
    out = [head if scale is None else Row((*head.pieces, Piece("  "), axis(scale)))]
    for one in lines:
        sign, tone = SIGNS[one.verdict]
        first = (Piece(f"{sign} ", tone), Piece(padded(fitted(one_line(one.name), name), name)))
        cells = (
            first,
            Piece(one.measured or UNKNOWN, "text" if one.measured else "dim"),
            Piece(str(one.n), "dim"),
            Piece(_ratio_text(one.memory), "dim"),
            Piece(_ratio_text(one.speed), "dim"),
        )
        row = columns.row(cells)
        if scale is not None:
            bar = ratio_bar(one.ratio, scale, _BARS[tone])
            row = Row((*row.pieces, Piece("  "), *bar))
        out += [row, *_verdict_rows(one, tone, width)]
    return out


def _verdict_rows(one: _VariantLine, tone: str, width: int) -> list[Row]:
    verdict = f"speed: {one.verdict}" if one.ratio else one.verdict
    lines = _wrapped("; ".join((verdict, *one.words)), width - 2, "")
    first = Piece(f"  {verdict}", tone)
    out = [Row((first, Piece(lines[0].removeprefix(verdict), "dim")))]
    return out + [Row((Piece(f"  {line}", "dim"),)) for line in lines[1:]]


def _ratio_text(one: Spread | None) -> str:
    return UNKNOWN if one is None else f"{_factor(one.median)}×"


def _spread(one: Spread | None) -> str:
    return "" if one is None else f"{_ratio_text(one)} ({_factor(one.low)}–{_factor(one.high)})"


def _factor(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


# --- the rest ---


def _conditions(detail: Detail, width: int) -> list[Row]:
    words = []
    if detail.first is not None:
        first = detail.first
        cost = [amount(first.seconds.median, "s")] if first.seconds else []
        cost += [amount(first.memory_mib.median, "MiB")] if first.memory_mib else []
        words.append(f"against {first.variant}: {', '.join(cost) or UNKNOWN}")
        words.append(f"time is {first.seconds_of or UNKNOWN}; memory is {first.memory_of or UNKNOWN}")
        if first.busy is not None and first.busy > 0.15:
            words.append(f"machine busy: other processes used {first.busy:.0%} of the CPUs before the rounds")
    if detail.machine:
        words.append(detail.machine)
    if detail.first is not None:
        words += [CHANGE_RULE] if detail.series is not None else []
        words.append(f"Bars: filled up to the near quartile, shaded up to the far one. {RULE}")
    return [Row((Piece(line, "dim"),)) for one in words for line in _wrapped(one, width, "  ")]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(one_line(text, 2000), max(width, 20), subsequent_indent=indent) or [""]
