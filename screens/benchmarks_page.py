"""The page of benchmarks: rows and curves."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgops.experiments.benchmark_list import OPTIONS, Entry
from kgops.experiments.benchmark_reader import BenchmarkPage, BenchmarkQuery
from kgops.jobs.text import OUT_OF_RANGE, is_timestamp, one_line
from kgops.views.formats import amount, padded
from screens.rows import Column, Columns, Piece, Row, text_row, title
from screens.widgets.chart_axis import Point, on_axis
from screens.widgets.curve_panels import braille
from screens.widgets.overlay import overlay
from screens.wording import tick_label

if TYPE_CHECKING:
    from kgops.experiments.charts import Curve


_LETTERS = "ABCDEFGH"
_HEIGHT, _AXIS, _WIDEST_CURVE = 8, 9, 90


def by_size(name: str, curves: Sequence[Curve], width: int) -> list[Row]:
    """Median seconds over size; logarithmic axes if all values are positive."""
    shown = curves[: len(_LETTERS)]
    points = [[(size, spread.median) for size, spread in sorted(one.points)] for one in shown]
    if not any(len(one) > 1 for one in points):
        return []
    by_factors = all(size > 0 and value > 0 for one in points for size, value in one)
    title = f"SECONDS OVER {one_line(name).upper()}"
    out = [text_row(title, width, "head"), *_chart(points, width, by_factors=by_factors)]
    if len(shown) > 1:
        named = zip(_LETTERS, shown, strict=False)
        out += [
            Row((Piece(f"{letter}  ", "accent"), *text_row(one.name, width - 3).pieces))
            for letter, one in named
        ]
    if len(curves) > len(shown):
        out.append(text_row(f"and {len(curves) - len(shown)} more: see `kgops bench export`", width, "dim"))
    return out


def _chart(
    curves: Sequence[Sequence[tuple[float, float]]],
    width: int,
    *,
    by_factors: bool,
) -> list[Row]:
    scaled = [[_scaled_point(size, value, by_factors) for size, value in one] for one in curves]
    sizes = [size for one in curves for size, _ in one]
    values = [value for one in curves for _, value in one]
    inner = max(min(width, _WIDEST_CURVE) - _AXIS - 1, 10)
    across = [size for one in scaled for size, _ in one]
    up = [value for one in scaled for _, value in one if value is not None]
    drawn = [on_axis(one, min(across), max(across), 2 * inner) for one in scaled]
    low, high = min(up), max(up)
    if len(drawn) == 1:
        lines = [[Piece(line, "accent")] for line in braille(drawn[0], inner, _HEIGHT, low, high)]
    else:
        lines = overlay(drawn, _LETTERS, inner, _HEIGHT, low, high, chosen=0)
    out = []
    for y, line in enumerate(lines):
        at = max(values) if y == 0 else min(values) if y == _HEIGHT - 1 else None
        is_named = at is not None and (y == 0 or min(values) < max(values))
        label = tick_label(amount(at), at, _AXIS) if at is not None and is_named else ""
        out.append(Row((Piece(f"{label:>{_AXIS}} ", "dim"), *line)))
    left, right = f"{min(sizes):,.4g}", f"{max(sizes):,.4g}"
    gap = max(inner - len(left) - len(right), 1)
    return [*out, Row((Piece(padded("", _AXIS + 1) + left + " " * gap + right, "dim"),))]


def _scaled_point(size: float, value: float, by_factors: bool) -> Point:
    return (math.log(size), math.log(value)) if by_factors else (size, value)


_WEEK_S = 6 * 86_400.0  # within this time a weekday is unambiguous
_WIDEST = 170
_NOTHING = (
    "No benchmarks yet. In a shell, best while the machine is idle:",
    "",
    "kgops bench claims --quick  measure which options pay on this machine",
    "kgops bench matrix JOB --vary batch_size=256,512  compare settings of a job",
)
_NONE_LIKE_IT = (
    "No benchmark of this machine matches the filter.",
    "",
    "/  edit the filter; an empty filter shows all",
    "M  include other machines, versions and commits",
)
_HINT = "/ filter: words, on:MACHINE · tab to the details"


_ENTRIES = (
    Column("BENCHMARK", 38, grows=True),
    Column("measured", 10),
    Column("metrics", 7, right=True),
    Column("machine", 12),
)


def title_row(page: BenchmarkPage | None, paused: bool, width: int) -> Row:
    right = "" if page is None or page.machine is None else _count(page)
    return title("benchmarks", right, width, *([Piece("paused", "warn")] if paused else []))


def _count(page: BenchmarkPage) -> str:
    """Number of entries, and their machine."""
    query = page.query
    if query.machine is not None:
        return f"{page.measured:,} on {one_line(query.machine, 12)}…"
    if query.all_machines:
        return f"{page.measured:,} on all machines"
    others = f" · {page.other_machines:,} on other machines" if page.other_machines else ""
    return f"{page.measured:,} on {one_line(page.host or page.machine or '', 24)}{others}"


def heading(query: BenchmarkQuery, width: int) -> Row:
    return _entry_columns(width, query.beyond).heading()


def entry_rows(page: BenchmarkPage, width: int) -> list[Row]:
    columns, now = _entry_columns(width, page.query.beyond), time.time()
    return [columns.row(_pieces(one, page.machine, now), key) for key, one in page.rows.items()]


def _pieces(one: Entry, here: str | None, now: float) -> list[Piece]:
    known = one.machine is not None or one.key == OPTIONS
    when = Piece("not yet" if one.machine is None else _when(one.at, now), "dim")
    if one.key == OPTIONS:
        when = Piece("")
    return [
        Piece(one.name, "text" if known else "dim"),
        when if one.ended else Piece("unfinished", "warn"),
        Piece(f"{one.metrics:,}" if one.metrics else "", "dim"),
        Piece(one.machine or "", "dim" if one.machine == here else "warn"),
    ]


def filter_row(text: str, width: int) -> Row:
    if not text.strip():
        return text_row(_HINT, width, "dim")
    return Row((Piece("/ ", "accent"), *text_row(text, width - 2, "strong").pieces))


def empty_rows(page: BenchmarkPage, width: int) -> list[Row]:
    """Hints in place of an empty list."""
    return [text_row(line, width) for line in (_NONE_LIKE_IT if page.anything else _NOTHING)]


def _entry_columns(width: int, machines: bool) -> Columns:
    return Columns(_ENTRIES if machines else _ENTRIES[:-1], min(width, _WIDEST))


def _when(at: float, now: float) -> str:
    """Time of today, weekday of the last week, else the date."""
    if not is_timestamp(at):
        return OUT_OF_RANGE
    when, today = time.localtime(at), time.localtime(now)
    if when[:3] == today[:3]:
        return time.strftime("%H:%M", when)
    if 0 < now - at < _WEEK_S:
        return time.strftime("%a %H:%M", when)
    return time.strftime("%d %b" if when[0] == today[0] else "%b %Y", when)
