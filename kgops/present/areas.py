"""Filled curves from eighths of a cell, small ones and those of several lines."""

from __future__ import annotations

from collections.abc import Sequence

from kgops.jobs.numbers import line_between, mean, share_between

Values = Sequence[float | None]

EIGHTHS = " ▁▂▃▄▅▆▇█"
_HEIGHTS = ("data", "area-high", "area-low", "area")


def small_area(values: Values, width: int, low: float | None = None, high: float | None = None) -> str:
    """One line, blank where there is no value. Ends of the scale that are not given are those of the values."""
    known = [value for value in values if value is not None]
    if not known:
        return " " * width
    return area(values, width, 1, min(known) if low is None else low, max(known) if high is None else high)[0]


def area(values: Values, width: int, height: int, low: float, high: float) -> list[str]:
    """`height` lines, top first. The lowest value fills an eighth: what is there is seen."""
    levels = [
        0 if value is None else level_of(value, low, high, 8 * height) + 1
        for value in spread_over(values, width)
    ]
    return [
        "".join(EIGHTHS[min(max(level - 8 * y, 0), 8)] for level in levels) for y in reversed(range(height))
    ]


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
