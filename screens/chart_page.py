"""Rows of one zoomed chart: each run's values at the cursor, the curves, both axes, memory's estimate and limit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kgops.jobs.numbers import mean, share_between
from kgops.jobs.text import one_line
from kgops.present.areas import level_of
from kgops.present.axes import FROM_ZERO, Axis
from kgops.present.chart import ChartPoint, ChartRun, axes, smoothed
from kgops.present.formats import UNKNOWN, duration, fitted, width_of
from kgops.present.rows import BLANK, Column, Columns, Piece, Row, joined, text_row
from kgops.present.wording import short_amount, short_reported, tick_label
from screens.widgets.chart_axis import on_axis
from screens.widgets.curve_panels import Level, memory_levels
from screens.widgets.overlay import HUES, LETTERS, Cell, Layer, cells

SMOOTHINGS = (0.0, 0.6, 0.9)  # weights of what came before
_LEAST_HEIGHT = 5
_LEAST_VALUE, _WIDEST_TABLE = 14, 150  # columns
_LABEL = 9  # columns of the y axis' labels
_EACH_X, _EACH_Y = 14, 3  # columns and lines for a tick
_TIME_STEPS_S = (
    1,
    2,
    5,
    10,
    15,
    30,
    *(60 * n for n in (1, 2, 5, 10, 15, 30)),
    *(3600 * n for n in (1, 2, 3, 6, 12)),
)
_DAY_S = 86_400


@dataclass(frozen=True)
class View:
    """How a person looks at the curves. `cursor`: its position on the x axis; None: on the newest point."""

    log: bool = False
    smoothing: float = 0.0
    over: str | None = None  # "epoch", "step" or "time"; None: as the points were reported
    cursor: float | None = None
    chosen: int = 0  # place among the runs


class _Curve(NamedTuple):
    points: list[ChartPoint]
    smooth: list[float | None]


class Plot:
    """The curves laid out over the columns of a screen. `view` may be replaced by one with another cursor."""

    def __init__(self, runs: Sequence[ChartRun], view: View, screen_width: int) -> None:
        self.runs, self.view, self._screen_width = runs, view, screen_width
        self.width = max(screen_width - _LABEL - 2, 2)
        self.axes = axes(runs)
        self.over = view.over if view.over in self.axes else self.axes[0]
        self.curves = [self._curve(run) for run in runs]
        xs = [point.x for curve in self.curves for point in curve.points]
        self.first, self.last = min(xs, default=0.0), max(xs, default=0.0)
        self._columns = [[self.column(point.x) for point in curve.points] for curve in self.curves]
        self.stops = sorted({column for columns in self._columns for column in columns})
        self.canvas: dict[int, list[list[Cell]]] = {}  # the curves, by height: a cursor's move redraws none

    def is_for(self, runs: Sequence[ChartRun], view: View, width: int) -> bool:
        """Whether nothing but the cursor has changed."""
        same = replace(view, cursor=None) == replace(self.view, cursor=None)
        return runs is self.runs and same and width == self._screen_width

    def _curve(self, run: ChartRun) -> _Curve:
        points = run.points(self.over)
        values = [point.value for point in points]
        return _Curve(points, smoothed(values, self.view.smoothing) if self.view.smoothing else values)

    def column(self, x: float) -> int:
        return round(share_between(x, self.first, self.last) * (self.width - 1))

    @property
    def _newest(self) -> int:
        """The column of the marked run's newest point."""
        marked = self._columns[self.view.chosen] if self.view.chosen < len(self._columns) else []
        return marked[-1] if marked else self.stops[-1] if self.stops else 0

    @property
    def cursor(self) -> int:
        """The column of the cursor: one in which there is a point."""
        if self.view.cursor is None or not self.stops:
            return self._newest
        at = self.column(self.view.cursor)
        return min(self.stops, key=lambda stop: abs(stop - at))

    def moved(self, by: int) -> float | None:
        """The cursor's position after so many points; None on the newest, which it then follows."""
        if not self.stops:
            return None
        place = min(max(self.stops.index(self.cursor) + by, 0), len(self.stops) - 1)
        column = self.stops[place]
        if column == self._newest:
            return None
        here = ((i, columns.index(column)) for i, columns in enumerate(self._columns) if column in columns)
        i, j = min(here, key=lambda place: place[0] != self.view.chosen)
        return self.curves[i].points[j].x

    def at_cursor(self, i: int) -> list[ChartPoint]:
        """The points of a run in the cursor's column, else the nearest one, if the cursor is within its curve."""
        return [self.curves[i].points[j] for j in self._places(i)]

    def smooth_at_cursor(self, i: int) -> list[float | None]:
        return [self.curves[i].smooth[j] for j in self._places(i)]

    def _places(self, i: int) -> list[int]:
        column, columns = self.cursor, self._columns[i]
        here = list(range(bisect_left(columns, column), bisect_right(columns, column)))
        if here or not columns or not columns[0] <= column <= columns[-1]:
            return here
        return [min(range(len(columns)), key=lambda j: abs(columns[j] - column))]

    def named(self, points: Sequence[ChartPoint]) -> str:
        """`epoch 37`, `epochs 30 to 37`, `0:41`."""
        if not points:
            return UNKNOWN
        first, last = self.number(points[0].x), self.number(points[-1].x)
        unit = "" if self.over == "time" else f"{self.over} " if first == last else f"{self.over}s "
        return unit + (first if first == last else f"{first} to {last}")

    def number(self, x: float) -> str:
        return duration(x) if self.over == "time" else f"{x:,.0f}" if x >= 10 else f"{x:.4g}"


def rows(name: str, plot: Plot, width: int, height: int, missing: Sequence[int] = ()) -> list[Row]:
    """`missing`: runs that are no longer in the record."""
    runs = plot.runs
    if not any(run.buckets for run in runs):
        return [text_row(f"no run has a curve {name}", width, "dim")]
    y = _YAxis(name, runs, plot.view)
    above = [*_table(plot, width), BLANK]
    notes = [text_row(text, width, tone) for text, tone in (*y.notes, *_notes(name, runs, missing))]
    lines = max(height - len(above) - len(notes) - 2, _LEAST_HEIGHT)
    return [*above, *_drawn(plot, y, lines), *_x_axis(plot), *notes]


# --- the table above ---


def _table(plot: Plot, width: int) -> list[Row]:
    points = [plot.at_cursor(i) for i in range(len(plot.curves))]
    values = [_value(plot, one) for one in points]
    # The column's points, whichever runs have them: a value from beside it says where it is.
    inside = sorted((p for one in points for p in one if plot.column(p.x) == plot.cursor), key=lambda p: p.x)
    here = plot.named(inside or points[min(plot.view.chosen, len(points) - 1)])
    smoothing = plot.view.smoothing
    columns = Columns(
        (
            Column("RUN", 20, grows=True),
            Column(here, max(_LEAST_VALUE, *map(len, (here, *values))), right=True),
            *((Column(f"smoothed {smoothing:g}", 12, right=True),) if smoothing else ()),
            Column("last", 9, right=True),
            Column("lowest", 17, right=True),
            Column("highest", 17, right=True),
        ),
        min(width, _WIDEST_TABLE),
    )
    return [columns.heading(), *(_run(plot, i, values[i], columns) for i in range(len(plot.runs)))]


def _run(plot: Plot, i: int, value: str, columns: Columns) -> Row:
    run, curve = plot.runs[i].run, plot.curves[i]
    marked = i == plot.view.chosen
    letter = f"{'›' if marked and len(plot.runs) > 1 else ' '}{LETTERS[i]} "
    room = columns.width_of("RUN") - len(letter)
    label = fitted(f"{run.id} {run.workload} {one_line(run.label)}", room)
    who = [
        Piece(letter, HUES[i]),
        Piece(label + " " * (room - width_of(label)), "strong" if marked else "text"),
    ]
    if not curve.points:
        return columns.row((who, Piece("no such curve", "dim")))
    return columns.row(
        (
            who,
            Piece(value, "strong"),
            *((Piece(short_amount(_mean(plot.smooth_at_cursor(i)))),) if plot.view.smoothing else ()),
            Piece(short_reported(curve.points[-1].value)),
            Piece(_extreme(plot, curve, min, lambda point: point.low), "dim"),
            Piece(_extreme(plot, curve, max, lambda point: point.high), "dim"),
        )
    )


def _value(plot: Plot, points: Sequence[ChartPoint]) -> str:
    """The mean and its range; for a point beside the cursor, where it is."""
    reported = [point.value for point in points if point.n]  # none in a pause of the run
    text = short_reported(_mean(reported)) if reported else UNKNOWN
    lows = [point.low for point in points if point.low is not None]
    highs = [point.high for point in points if point.high is not None]
    if points and plot.column(points[0].x) != plot.cursor:
        return f"{text} at {plot.number(points[0].x)}"
    if lows and min(lows) < max(highs):
        return f"{text} ({short_amount(min(lows))} to {short_amount(max(highs))})"
    return text


def _extreme(
    plot: Plot,
    curve: _Curve,
    which: Callable[..., ChartPoint],
    value_of: Callable[[ChartPoint], float | None],
) -> str:
    known = [point for point in curve.points if value_of(point) is not None]
    if not known:
        return UNKNOWN
    point = which(known, key=value_of)
    return f"{short_amount(value_of(point))} at {plot.number(point.x)}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def _notes(name: str, runs: Sequence[ChartRun], missing: Sequence[int]) -> Iterator[tuple[str, str]]:
    many = max((bucket.n for run in runs for bucket in run.buckets), default=1)
    if many > 1:
        yield f"each point is the mean of {many} that were reported", "dim"
    for run in runs:
        if not run.buckets:
            yield f"run {run.run.id} has no curve {one_line(name)}", "warn"
    for number in missing:
        yield f"run {number} is not in the record", "warn"


# --- the y axis ---


class _YAxis:
    """Linear with round ticks, or logarithmic where every shown value is above zero."""

    def __init__(self, name: str, runs: Sequence[ChartRun], view: View) -> None:
        chosen = runs[min(view.chosen, len(runs) - 1)]
        values = [
            value
            for run in runs
            for bucket in run.buckets
            for value in (bucket.mean, *((bucket.min, bucket.max) if len(runs) == 1 else ()))
            if value is not None
        ]
        self.notes: list[tuple[str, str]] = []
        self.levels: list[Level] = []
        if name.endswith("_mib"):
            self.levels, far = memory_levels(chosen.estimate_mib, chosen.limit_mib, max(values, default=0.0))
            if far is not None:
                self.notes.append((f"{far.name} MiB is far above this chart", "dim"))
        values += [level.mib for level in self.levels]
        self._positive = [value for value in values if value > 0]
        self.log = view.log and bool(self._positive)
        if view.log and not self._positive:
            self.notes.append(("no value is above zero: the y axis stays linear", "warn"))
        elif view.log and len(self._positive) < len(values):
            self.notes.append(("values at or below zero are not drawn on a logarithmic axis", "warn"))
        if not self.log and name.endswith(FROM_ZERO):
            values.append(0.0)
        self._values = values or [0.0]

    def over(self, lines: int) -> Axis:
        """From 0 at the foot to 1 at the top."""
        if self.log:
            low, high = min(self._positive), max(self._positive)
            return (
                Axis(low, high, 0.0, 1.0, "", True)
                if low < high
                else Axis(low / 2, high * 2, 0.0, 1.0, "", True)
            )
        low, high = min(self._values), max(self._values)
        if low == high:
            low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
        return Axis.around(low, high, 0.0, 1.0, at_most=max(lines // _EACH_Y, 2), outside=True)

    def share(self, axis: Axis, value: float | None) -> float | None:
        return None if value is None or (self.log and value <= 0) else axis(value)


def _drawn(plot: Plot, y: _YAxis, lines: int) -> list[Row]:
    axis = y.over(lines)
    if lines not in plot.canvas:
        plot.canvas[lines] = _canvas(plot, y, axis, lines)
    canvas = [list(line) for line in plot.canvas[lines]]
    for line in canvas:
        char, _ = line[plot.cursor]
        line[plot.cursor] = ("│", "dim") if char == " " else (char, "strong")
    labels = _labels(axis, lines)
    return [
        Row(
            (
                Piece(f"{labels.get(i, ''):>{_LABEL}} {'┤' if i in labels else '│'}", "dim"),
                *joined(line),
            )
        )
        for i, line in enumerate(canvas)
    ]


def _canvas(plot: Plot, y: _YAxis, axis: Axis, lines: int) -> list[list[Cell]]:
    layers = list(_layers(plot, y, axis))
    canvas = cells(layers, plot.width, lines, 0.0, 1.0, top=min(plot.view.chosen, len(plot.runs) - 1))
    for level in y.levels:
        share = y.share(axis, level.mib)
        if share is not None:
            _draw_level(canvas[lines - 1 - level_of(share, 0.0, 1.0, 4 * lines) // 4], level)
    return canvas


def _layers(plot: Plot, y: _YAxis, axis: Axis) -> Iterator[Layer]:
    """The runs' curves; below those that are smoothed, the curves as they were reported."""
    single = len(plot.runs) == 1
    faint = []
    for i, curve in enumerate(plot.curves):
        tone = HUES[i]
        smooth = _columns(plot, curve.points, [y.share(axis, value) for value in curve.smooth])
        yield Layer(smooth, tone, "" if single or not curve.points else LETTERS[i], tone)
        if plot.view.smoothing:
            faint.append(_columns(plot, curve.points, [y.share(axis, point.value) for point in curve.points]))
    yield from (Layer(values, "dim") for values in faint)


def _columns(plot: Plot, points: Sequence[ChartPoint], shares: Sequence[float | None]) -> list[float | None]:
    """One value for each half column: means where there are more points, lines between fewer."""
    count = 2 * plot.width
    by_column: dict[int, list[float | None]] = {}
    for point, share in zip(points, shares, strict=True):
        place = round(share_between(point.x, plot.first, plot.last) * (count - 1))
        by_column.setdefault(place, []).append(share)
    means = [(float(place), _mean(values)) for place, values in by_column.items()]
    return on_axis(means, 0.0, count - 1.0, count)


def _draw_level(line: list[Cell], level: Level) -> None:
    """Dashed where the curve is, so that both are seen; its name on the left."""
    for x, (char, _) in enumerate(line):
        if char == " " or (x % 2 == 0 and not char.isalpha()):
            line[x] = level.sign, level.tone
    name = f"{level.sign} {level.name} MiB "
    line[: len(name)] = [(char, level.tone) for char in name][: len(line)]


def _labels(axis: Axis, lines: int) -> dict[int, str]:
    """Labels of ticks by line, from the top; two never share one."""
    out: dict[int, str] = {}
    for value, label in reversed(axis.ticks()):
        line = lines - 1 - level_of(axis(value), 0.0, 1.0, 4 * lines) // 4
        out.setdefault(line, tick_label(label, value, _LABEL))
    return out


# --- the x axis ---


def _x_axis(plot: Plot) -> list[Row]:
    line = ["─"] * plot.width
    names = [" "] * plot.width
    free = 0
    for x, label in _x_ticks(plot):
        column = plot.column(x)
        start = min(max(column - len(label) // 2, 0), plot.width - len(label))
        if start < free:
            continue
        line[column] = "┬"
        names[start : start + len(label)] = label
        free = start + len(label) + 2
    unit = fitted(plot.over, _LABEL)
    return [
        Row((Piece(f"{'':{_LABEL}} └{''.join(line)}", "dim"),)),
        Row((Piece(f"{unit:>{_LABEL}}  {''.join(names)}".rstrip(), "dim"),)),
    ]


def _x_ticks(plot: Plot) -> list[tuple[float, str]]:
    most = max(plot.width // _EACH_X, 2)
    if plot.first >= plot.last:
        return [(plot.first, plot.number(plot.first))]
    if plot.over != "time":
        least = 1.0 if plot.over == "epoch" else 0.0
        return Axis.around(plot.first, plot.last, 0.0, 1.0, at_most=most, least=least).ticks()
    step = next((s for s in _TIME_STEPS_S if (plot.last - plot.first) / s <= most), _DAY_S)
    while (plot.last - plot.first) / step > most:
        step *= 2
    first = int(-(-plot.first // step))
    return [(n * step, duration(n * step)) for n in range(first, int(plot.last // step) + 1)]
