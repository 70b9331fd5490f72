"""Curves and panels of curves."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kgops.jobs.text import one_line
from kgops.present.areas import (
    ALL_DOTS,
    BRAILLE,
    LEFT_DOTS,
    RIGHT_DOTS,
    Values,
    dotted_area,
    level_of,
    spread_over,
    toned,
)
from kgops.present.axes import FROM_ZERO
from kgops.present.formats import fitted, padded, width_of
from kgops.present.rows import BLANK, Piece, Row, beside, joined, text_row
from kgops.present.wording import short_amount, short_reported, tick_label
from screens.widgets.chart_axis import XAxis


def braille(values: Values, width: int, height: int, low: float, high: float) -> list[str]:
    """A curve of `height` lines, top first; adjacent points are joined."""
    levels = 4 * height
    grid = [[0] * width for _ in range(height)]
    before: int | None = None
    for x, value in enumerate(spread_over(values, 2 * width)):
        if value is None:
            before = None
            continue
        level = level_of(value, low, high, levels)
        start = level if before is None else before + (before < level) - (before > level)
        for at in range(min(start, level), max(start, level) + 1):
            line, dot = divmod(at, 4)
            grid[height - 1 - line][x // 2] |= (RIGHT_DOTS if x % 2 else LEFT_DOTS)[dot]
        before = level
    return ["".join(chr(BRAILLE + dots) if dots else " " for dots in line) for line in grid]


if TYPE_CHECKING:
    from kgops.present.run_detail import Curve, RunDetail


_HEIGHT, _HIGHEST = 5, 16  # lines of a chart
_AXIS = 8
_NARROWEST = 34
_AROUND = 2  # lines of a panel that are no chart
_MOST = 8
_RARELY_WATCHED = ("learning_rate",)  # shown last
_GRID = "┈"
_FAR = 5  # a limit so many times as high as all else would leave the curve flat


class Level(NamedTuple):
    """A line across a memory chart, in its own sign and tone."""

    mib: float
    name: str
    sign: str
    tone: str


def memory_levels(
    estimate: float | None, limit: float | None, top: float
) -> tuple[list[Level], Level | None]:
    """The estimate and the limit above it, where known; apart from them a limit far above the chart."""
    shown = [Level(estimate, f"predicted {estimate:,.0f}", "─", "warn")] if estimate is not None else []
    if limit is None:
        return shown, None
    level = Level(limit, f"limit {limit:,.0f}", "┄", "text")
    far = limit > _FAR * max(top, estimate or 0.0)
    return (shown, level) if far else ([*shown, level], None)


def chart_names(detail: RunDetail, ending: str = "") -> list[str]:
    """The curves that have a panel, in order; a panel's number is its place."""
    return [curve.name for curve in _chosen(detail, ending)]


def panels(
    detail: RunDetail, width: int, room: int = 0, *, marked: str | None = None, ending: str = ""
) -> list[Row]:
    """Panels side by side, as many as fit, to fill `room` lines; of curves whose names end so. `marked`: the one that
    Enter zooms."""
    curves = _chosen(detail, ending)
    still = _unchanging(detail, width) if not ending else []
    if not curves:
        return [text_row("CURVES", width, "head"), *still] if still else []
    across = max(min(width // _NARROWEST, 2 if len(curves) == 4 else 3, len(curves)), 1)
    each = (width - 3 * (across - 1)) // across
    down = -(-len(curves) // across)
    lines = room - 1 - (2 if still else 0) - (down - 1)  # without the heading and what is between
    height = min(max(lines // down - _AROUND, _HEIGHT), _HIGHEST)
    out = [text_row("CURVES", width, "head")]
    for start in range(0, len(curves), across):
        drawn = [
            _panel(curve, detail, each, height, number, curve.name == marked)
            for number, curve in enumerate(curves[start : start + across], start + 1)
        ]
        out += [BLANK] if start else []
        out += [beside(lines) for lines in zip(*drawn, strict=True)]
    return [*out, BLANK, *still] if still else out


def main_panel(detail: RunDetail, width: int, height: int) -> list[Row]:
    """The most important curve; empty where there is none."""
    curves = _chosen(detail)[:1]
    return [Row(tuple(line)) for curve in curves for line in _panel(curve, detail, width, height)]


def _chosen(detail: RunDetail, ending: str = "") -> list[Curve]:
    """Curves with at least two different values, most important first."""
    named = (curve for curve in detail.curves if curve.name.endswith(ending))
    drawable = [curve for curve in named if curve.n > 1 and not _is_still(curve, detail)]
    return sorted(drawable, key=lambda curve: _rank(curve.name, detail))[:_MOST]


def _is_still(curve: Curve, detail: RunDetail) -> bool:
    """Whether a curve is constant. A constant loss, metric or estimated memory is still drawn."""
    is_news = curve.name in ("loss", detail.run.metric) and curve.name not in _RARELY_WATCHED
    if is_news or (curve.last and detail.estimate_mib(curve.name) is not None):
        return False
    least = {bucket.min for bucket in curve.buckets}
    return len(least) == 1 and least == {bucket.max for bucket in curve.buckets} and None not in least


def _unchanging(detail: RunDetail, width: int) -> list[Row]:
    still = [one for one in detail.curves if one.n > 1 and one.last and _is_still(one, detail)]
    if not still:
        return []
    values_text = ", ".join(f"{display_name(curve.name)} {short_amount(curve.last)}" for curve in still)
    return [text_row(f"constant: {values_text}", width, "dim")]


def _rank(name: str, detail: RunDetail) -> tuple[int, str]:
    if name == "loss":
        return 0, name
    if name == detail.run.metric or name.endswith("_mrr"):
        return 1, name
    if name == "gpu_memory_mib" or (name == "host_memory_mib" and detail.run.gpu is None):
        return 2, name
    if name.endswith(("_per_s", "_seconds")):
        return 3, name
    return (6 if name in _RARELY_WATCHED else 5 if name.endswith("_mib") else 4), name


def _panel(
    curve: Curve, detail: RunDetail, width: int, height: int, number: int | None = None, marked: bool = False
) -> list[list[Piece]]:
    """Heading, lines of the chart and its axis, each `width` wide."""
    curve = detail.drawn(curve)
    numbers = [bucket.mean for bucket in curve.buckets if bucket.mean is not None]
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 0.0)
    if curve.name.endswith(FROM_ZERO):
        low, high = min(low, 0.0), max(high, 1e-9)
    levels, _ = memory_levels(detail.estimate_mib(curve.name), detail.limit_mib(curve.name), high)
    if levels:
        high = max(high, *(level.mib for level in levels))
    inner = width - _AXIS - 1
    x_axis = XAxis(curve, detail.run)
    lines = dotted_area(x_axis.values(2 * inner), inner, height, low, high)
    heading, named = _heading(curve, levels, width, number, marked)
    at = {}
    for one in reversed(levels):
        at[height - 1 - level_of(one.mib, low, high, height)] = one
    ticks = {height - 1: low, height // 2: high - (high - low) * (2 * (height // 2) + 1) / (2 * height)}
    ticks = {0: high, **(ticks if high > low else {})}
    out = [heading]
    for y, line in enumerate(lines):
        label = tick_label(short_amount(ticks[y]), ticks[y], _AXIS) if y in ticks else ""
        axis = Piece(f"{label:>{_AXIS}} ", "dim")
        grid = _GRID if y in ticks and 0 < y < height - 1 else " "
        cells = toned(line, y, height)
        drawn = _across(cells, at[y], named) if y in at else _above(cells, grid)
        out.append([axis, *drawn])
    return [*out, x_axis.labels(_AXIS + 1, inner)]


def _above(cells: Iterable[tuple[str, str]], grid: str) -> list[Piece]:
    """The line of a tick where nothing else is."""
    return joined((grid, "edge") if cell[0] == " " else cell for cell in cells)


def chart_heading(name: str, number: int | None, marked: bool, width: int) -> list[Piece]:
    """Number and name, which a click zooms; `›` marks the chart that Enter zooms."""
    if number is None:
        return [Piece(padded(fitted(one_line(name), width), width))]
    before = f"{'›' if marked else ' '}{number} "
    return [
        Piece(before, "accent" if marked else "dim"),
        Piece(
            padded(fitted(one_line(name), max(width - len(before), 4)), width - len(before)),
            "strong" if marked else "text",
            f"screen.zoom({number})",
        ),
    ]


def _heading(
    curve: Curve, levels: Sequence[Level], width: int, number: int | None, marked: bool
) -> tuple[list[Piece], Container[Level]]:
    """The heading, and the levels whose names fit into it."""
    last, name = short_reported(curve.last), display_name(curve.name)
    named: list[Level] = []
    room = width - len(name) - len(last) - 4
    for level in levels:
        room -= len(level.name) + 3
        if room >= 0:
            named.append(level)
    beside = [Piece(f" {level.sign} {level.name}", level.tone) for level in named]
    across = width - len(last) - 1
    taken = min(width_of(name) + 3, across) + sum(len(piece.text) for piece in beside)
    pieces = [
        *chart_heading(name, number, marked, min(width_of(name) + 3, across)),
        *beside,
        Piece(" " * max(width - taken - len(last), 1)),
        Piece(last, "strong" if curve.last is not None else "bad"),
    ]
    return pieces, named


def display_name(name: str) -> str:
    for ending, unit in (("_mib", " MiB"), ("_per_s", "/s")):
        if name.endswith(ending):
            return _words(name.removesuffix(ending)) + unit
    return _words(name)


def _words(name: str) -> str:
    return " ".join("GPU" if word == "gpu" else word for word in one_line(name).split("_"))


def _across(cells: Iterable[tuple[str, str]], level: Level, named: Container[Level]) -> list[Piece]:
    """Draws a level's line above the curve and through it; where the curve ends in this line, it hides the level."""
    drawn = [
        (char, tone) if char not in (" ", ALL_DOTS) else (level.sign, level.tone) for char, tone in cells
    ]
    name = "" if level in named else f"{level.sign} {level.name} "
    drawn[: len(name)] = [(char, level.tone) for char in name]
    return joined(drawn)
