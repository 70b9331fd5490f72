"""The page of benchmarks: rows and curves."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

from kgops.cli.output import amount, fitted, padded
from kgops.experiments.benchmark_list import OVERVIEW
from kgops.jobs.text import OUT_OF_RANGE, clock, is_timestamp, one_line
from screens.rows import Column, Columns, Piece, Row, text_row, title
from screens.widgets.curve_panels import braille
from screens.widgets.overlay import Point, on_axis, overlay
from storage.metric_query import Metric

__all__ = [
    "FIRST",
    "BenchmarkRows",
    "by_size",
    "empty_rows",
    "filter_row",
    "heading",
    "over_time",
    "sorts",
    "title_row",
]

if TYPE_CHECKING:
    from kgops.experiments.charts import Curve
    from kgops.experiments.result_detail import Detail


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


def over_time(detail: Detail, width: int) -> list[Row]:
    """A value over its measurements, evenly spaced: the days between do not matter."""
    values = [value for _, value in detail.over_time]
    if len(values) < 2:
        return []
    first, last = (clock(at, "%d %b %Y") for at, _ in (detail.over_time[0], detail.over_time[-1]))
    title = f"{len(values):,} MEASUREMENTS ON THIS MACHINE"
    values_by_index = [(float(i), value) for i, value in enumerate(values)]
    return [
        text_row(title, width, "head"),
        *_chart([values_by_index], width, by_factors=False, ends=(first, last)),
    ]


def _chart(
    curves: Sequence[Sequence[tuple[float, float]]],
    width: int,
    *,
    by_factors: bool,
    ends: tuple[str, str] | None = None,
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
        label = amount(at) if at is not None and (y == 0 or min(values) < max(values)) else ""
        out.append(Row((Piece(f"{fitted(label, _AXIS):>{_AXIS}} ", "dim"), *line)))
    left, right = ends or (f"{min(sizes):,.4g}", f"{max(sizes):,.4g}")
    gap = max(inner - len(left) - len(right), 1)
    return [*out, Row((Piece(padded("", _AXIS + 1) + left + " " * gap + right, "dim"),))]


def _scaled_point(size: float, value: float, by_factors: bool) -> Point:
    return (math.log(size), math.log(value)) if by_factors else (size, value)


if TYPE_CHECKING:
    from kgops.experiments.benchmark_list import Entry
    from kgops.experiments.metric_query import MetricPage, MetricQuery


_WEEK_S = 6 * 86_400.0  # within this time a weekday is unambiguous
_WIDEST = 170
_NOTHING = (
    "No benchmarks yet. In a shell, best while the machine is idle:",
    "",
    "kgops bench claims --quick  test the claims on this machine",
    "kgops bench matrix JOB --vary batch_size=256,512  compare settings of a job",
)
_NONE_LIKE_IT = (
    "No benchmark of this machine matches the filter.",
    "",
    "/  edit the filter; an empty filter shows all",
    "M  include other machines, versions and commits",
)
_HINT = "/ filter: words, on:MACHINE · tab to the details"


class _Sortable(NamedTuple):
    column: Column
    by: str
    descending: bool = False


_ENTRIES = (
    Column("BENCHMARK", 38, grows=True),
    Column("measured", 10),
    Column("metrics", 7, right=True),
    Column("machine", 12),
)
_METRICS = (
    _Sortable(Column("METRIC", 26, grows=True), "subject"),
    _Sortable(Column("of", 10), "unit"),
    _Sortable(Column("value", 13, right=True), "value", True),
    _Sortable(Column("n", 4, right=True), "n", True),
    _Sortable(Column("measured", 10), "id", True),
    _Sortable(Column("bench", 5, right=True), "bench", True),
    _Sortable(Column("name", 30), "name"),
)
_OF_MACHINE = Column("machine", 12)
FIRST = {one.by: one.descending for one in _METRICS}


def title_row(query: MetricQuery, page: MetricPage | None, paused: bool, width: int) -> Row:
    name = "benchmarks  single values" if query.single else "benchmarks"
    right = "" if page is None or page.machine is None else _count(page)
    return title(name, right, width, *([Piece("paused", "warn")] if paused else []))


def _count(page: MetricPage) -> str:
    """Number of entries, and their machine."""
    query = page.query
    if query.machine is not None:
        return f"{page.measured:,} on {one_line(query.machine, 12)}…"
    if query.all_machines:
        return f"{page.measured:,} on all machines"
    others = f" · {page.other_machines:,} on other machines" if page.other_machines else ""
    return f"{page.measured:,} on {one_line(page.host or page.machine or '', 24)}{others}"


def sorts(width: int) -> list[str]:
    """Sort keys of the visible columns of values, from the left."""
    columns = _metric_columns(width, machines=False)
    return [one.by for one in _METRICS if columns.width_of(one.column.head)]


def heading(query: MetricQuery, width: int) -> Row:
    if not query.single:
        return _entry_columns(width, query.beyond).heading()
    columns = _metric_columns(width, query.beyond)
    pieces: list[Piece] = []
    for one in _METRICS:
        across = columns.width_of(one.column.head)
        if not across:
            break
        sorted_by = query.sort == one.by
        text = one.column.head + (("▼" if query.descending else "▲") if sorted_by else "")
        tone = "accent" if sorted_by else "head" if one is _METRICS[0] else "dim"
        pieces += [Piece("  ")] if pieces else []
        pieces.append(Piece(padded(text, across, right=one.column.right), tone, f"screen.sort({one.by!r})"))
    if columns.width_of(_OF_MACHINE.head):
        pieces += [Piece("  "), Piece(_OF_MACHINE.head, "dim")]
    return Row(tuple(pieces))


class BenchmarkRows(Sequence[Row]):
    """All entries of a page as rows, made when drawn; rows not read yet are empty."""

    def __init__(self, page: MetricPage, width: int) -> None:
        self._page = page
        columns = _metric_columns if page.query.single else _entry_columns
        self._columns = columns(width, page.query.beyond)
        self._rows: dict[object, Row] = {}
        self._now = time.time()

    def __len__(self) -> int:
        return len(self._page.keys)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        key = self._page.keys[at]
        if key not in self._rows:
            self._rows[key] = self._row(key, self._page.rows.get(key))
        return self._rows[key]

    def _row(self, key: object, one: Entry | Metric | None) -> Row:
        if one is None:
            return Row((Piece(" "),), key)
        if isinstance(one, Metric):
            return self._columns.row(self._of_metric(one), key)
        return self._columns.row(self._of_entry(one), key)

    def _of_entry(self, one: Entry) -> list[Piece]:
        known = one.machine is not None or one.key == OVERVIEW
        when = Piece("not here" if one.machine is None else _when(one.at, self._now), "dim")
        if one.key == OVERVIEW:
            when = Piece("")
        return [
            Piece(one.name, "text" if known else "dim"),
            when if one.ended else Piece("unfinished", "warn"),
            Piece(f"{one.metrics:,}" if one.metrics else "", "dim"),
            self._machine(one.machine),
        ]

    def _of_metric(self, one: Metric) -> list[Piece]:
        bench, _, of = one.name.rpartition(": ")  # the name format of a benchmark's values
        return [
            Piece(one.subject),
            Piece(of if bench else "", "dim"),
            Piece(amount(one.value, one.unit)),
            Piece(str(one.n), "dim"),
            Piece(_when(one.at, self._now), "dim"),
            Piece("" if one.bench is None else str(one.bench), "dim"),
            Piece(bench or one.name, "dim"),
            self._machine(one.machine),
        ]

    def _machine(self, key: str | None) -> Piece:
        """Machine key, highlighted if it is not the current machine."""
        return Piece(key or "", "dim" if key == self._page.machine else "warn")


def filter_row(text: str, width: int) -> Row:
    if not text.strip():
        return text_row(_HINT, width, "dim")
    return Row((Piece("/ ", "accent"), *text_row(text, width - 2, "strong").pieces))


def empty_rows(page: MetricPage, width: int) -> list[Row]:
    """Hints in place of an empty list."""
    return [text_row(line, width) for line in (_NONE_LIKE_IT if page.anything else _NOTHING)]


def _entry_columns(width: int, machines: bool) -> Columns:
    return Columns(_ENTRIES if machines else _ENTRIES[:-1], min(width, _WIDEST))


def _metric_columns(width: int, machines: bool) -> Columns:
    columns = [one.column for one in _METRICS]
    return Columns([*columns, _OF_MACHINE] if machines else columns, min(width, _WIDEST))


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
