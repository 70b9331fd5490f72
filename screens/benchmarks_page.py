"""The page of benchmarks: rows and curves."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgops.experiments.benchmark_reader import BenchmarkPage, BenchmarkQuery
from kgops.experiments.benchmark_results import seconds_of
from kgops.jobs.text import one_line
from kgops.present.formats import amount, padded, seconds_text
from kgops.present.rows import Column, Columns, Piece, Row, text_row, title
from kgops.present.wording import short_time, tick_label
from screens.widgets.chart_axis import Point, on_axis
from screens.widgets.curve_panels import braille
from screens.widgets.overlay import overlay

if TYPE_CHECKING:
    from kgops.experiments.benchmark_reader import Curve
    from kgops.experiments.benchmark_results import Series


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
        out.append(text_row(f"and {len(curves) - len(shown)} more: see `kgops bench show`", width, "dim"))
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
        lines = [[Piece(line, "data")] for line in braille(drawn[0], inner, _HEIGHT, low, high)]
    else:
        lines = overlay(drawn, _LETTERS, inner, _HEIGHT, low, high)
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


_WIDEST = 170
_NOTHING = (
    "No benchmarks yet. In a shell, best while the machine is idle:",
    "",
    "kgops bench claims --quick  measure which options pay on this machine",
    "kgops bench matrix JOB --vary batch_size=256,512  compare settings of a job",
)
_NONE_LIKE_IT = ("No benchmark matches the filter.", "", "/  edit the filter; an empty filter shows all")
_HINT = "/ filter: words of names, options, GPU, CPU or host, such as t4"

_COLUMNS = (
    Column("BENCHMARK", 12, grows=True, by="name"),
    Column("fastest", 29, grows=True, by="fastest"),
    Column("time", 8, right=True, by="seconds"),
    Column("than before", 12, by="change", descending=True),
    Column("machine", 10, grows=True, by="device"),
    Column("measured", 10, by="at", descending=True),
)
FIRST = {one.by: one.descending for one in _COLUMNS if one.by is not None}
CHANGE_TONES = {"slower": "bad", "faster": "good"}


def title_row(page: BenchmarkPage | None, width: int) -> Row:
    right = "" if page is None or not page.total else _count(page)
    is_running = page is not None and page.running
    between = [Piece("a benchmark is running: s stops it", "accent")] if is_running else []
    return title("benchmarks", right, width, *between)


def _count(page: BenchmarkPage) -> str:
    of = f"{page.shown:,} of " if page.shown != page.total else ""
    return f"{of}{page.total:,} benchmark{'' if page.total == 1 else 's'}"


def sorts(width: int) -> list[str]:
    """Sort keys of the visible columns, from the left."""
    return _columns(width).sorts


def heading(query: BenchmarkQuery, width: int) -> Row:
    return _columns(width).sort_heading(query.sort, descending=query.descending)


def entry_rows(page: BenchmarkPage, width: int) -> list[Row]:
    columns, now = _columns(width), time.time()
    return [
        text_row(one.name, width, key=key)
        if one.series is None
        else columns.row(_pieces(one.series, now), key)
        for key, one in page.rows.items()
    ]


def _pieces(series: Series, now: float) -> list[Piece]:
    last = series.results[-1]
    return [
        Piece(series.name.removeprefix("matrix ")),
        *_answer(series, ended=last.ended),
        Piece(series.device.removeprefix("NVIDIA "), "dim"),
        Piece(short_time(last.at, now), "dim"),
    ]


def _answer(series: Series, *, ended: bool) -> list[Piece]:
    """The fastest configuration, its time, and the change of that."""
    fastest, unfinished = series.fastest, Piece("unfinished", "warn")
    if fastest is None:
        return [unfinished if not ended else Piece("failed", "bad"), Piece(""), Piece("")]
    before = series.than_before(fastest.row.variant)
    changed = Piece("first", "dim")
    if before is not None:
        changed = Piece(str(before[1]), CHANGE_TONES.get(before[1].verdict, "dim"))
    time = seconds_text(seconds_of(fastest.row).median)
    return [Piece(fastest.row.variant), Piece(time), changed if ended else unfinished]


def filter_row(text: str, width: int) -> Row:
    if not text.strip():
        return text_row(_HINT, width, "dim")
    return Row((Piece("/ ", "accent"), *text_row(text, width - 2, "strong").pieces))


def empty_rows(page: BenchmarkPage, width: int) -> list[Row]:
    """Hints in place of an empty list."""
    return [text_row(line, width) for line in (_NONE_LIKE_IT if page.total else _NOTHING)]


def _columns(width: int) -> Columns:
    return Columns(_COLUMNS, min(width, _WIDEST))
