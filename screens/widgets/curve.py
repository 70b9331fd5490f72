"""Curves in braille characters: two points per column, four levels per line."""

from __future__ import annotations

from collections.abc import Sequence

from kgops.jobs.numbers import line_between, mean, share_between

__all__ = ["braille", "level_of", "sparkline", "spread_over"]

_LEFT = (0x40, 0x04, 0x02, 0x01)  # dots of the left column, from the bottom
_RIGHT = (0x80, 0x20, 0x10, 0x08)

Values = Sequence[float | None]


def sparkline(values: Values, width: int) -> str:
    """The newest `2 * width` values as a filled curve; blank where there is no value."""
    newest: list[float | None] = list(values)[-2 * width :]
    if not any(value is not None for value in newest):
        return " " * width
    known = [value for value in newest if value is not None]
    low, high = min(known), max(known)
    newest = [*[None] * (2 * width - len(newest)), *newest]
    levels = [None if value is None else level_of(value, low, high, 4) for value in newest]
    out = []
    for left, right in zip(levels[::2], levels[1::2], strict=True):
        dots = sum(_LEFT[: left + 1] if left is not None else ())
        dots += sum(_RIGHT[: right + 1] if right is not None else ())
        out.append(chr(0x2800 + dots) if dots else " ")
    return "".join(out)


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
            grid[height - 1 - line][x // 2] |= (_RIGHT if x % 2 else _LEFT)[dot]
        before = level
    return ["".join(chr(0x2800 + dots) if dots else " " for dots in line) for line in grid]


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
