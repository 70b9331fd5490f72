"""Filled curves: small ones from eighths of a cell, and those of several lines from braille."""

from __future__ import annotations

from collections.abc import Sequence

from kgops.jobs.numbers import line_between, mean, share_between

Values = Sequence[float | None]

_EIGHTHS = "▁▂▃▄▅▆▇█"
BRAILLE, ALL_DOTS = 0x2800, "⣿"
LEFT_DOTS = (0x40, 0x04, 0x02, 0x01)  # of a cell, from the bottom
RIGHT_DOTS = (0x80, 0x20, 0x10, 0x08)
_HEIGHTS = ("data", "area-high", "area-low", "area")


def small_area(values: Values, width: int, low: float | None = None, high: float | None = None) -> str:
    """One line, blank where there is no value. Ends of the scale that are not given are those of the values."""
    known = [value for value in values if value is not None]
    if not known:
        return " " * width
    low, high = min(known) if low is None else low, max(known) if high is None else high
    spread = spread_over(values, width)
    return "".join(" " if value is None else _EIGHTHS[level_of(value, low, high, 8)] for value in spread)


def dotted_area(values: Values, width: int, height: int, low: float, high: float) -> list[str]:
    """`height` lines, top first, of cells with two columns of four dots. The lowest value fills one: what is there is
    seen."""
    levels = [
        0 if value is None else level_of(value, low, high, 4 * height) + 1
        for value in spread_over(values, 2 * width)
    ]
    return [
        "".join(
            _cell(left - 4 * y, right - 4 * y) for left, right in zip(levels[::2], levels[1::2], strict=True)
        )
        for y in reversed(range(height))
    ]


def _cell(left: int, right: int) -> str:
    """Filled up to so many dots in each column."""
    dots = sum(LEFT_DOTS[: max(left, 0)]) + sum(RIGHT_DOTS[: max(right, 0)])
    return chr(BRAILLE + dots) if dots else " "


def toned(line: str, y: int, height: int) -> list[tuple[str, str]]:
    """Cells of line `y` of an area, from the top: the higher, the brighter."""
    tone = _HEIGHTS[y * len(_HEIGHTS) // height]
    return [(char, tone) for char in line]


def spread_over(values: Values, count: int) -> list[float | None]:
    """Resamples to `count` values: means where there are more, linear interpolation where fewer."""
    count_given = len(values)
    if not count_given:
        return [None] * count
    if count_given < count:
        return [_between(values, i * (count_given - 1) / max(count - 1, 1)) for i in range(count)]
    out: list[float | None] = []
    for i in range(count):
        start, stop = i * count_given // count, (i + 1) * count_given // count
        known = [value for value in values[start:stop] if value is not None]
        out.append(mean(known) if known else None)
    return out


def _between(values: Values, at: float) -> float | None:
    here = int(at)
    left, right = values[here], values[min(here + 1, len(values) - 1)]
    if left is None or right is None:
        return left if at - here < 0.5 else right
    return line_between(left, right, at - here)


def level_of(value: float, low: float, high: float, levels: int) -> int:
    if high <= low:
        return levels // 2 - 1 if levels > 1 else 0
    return min(int(share_between(value, low, high) * levels), levels - 1)
