"""Charts of benchmarks: time over size, and a value over its measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgops.cli.output import amount, fitted, padded
from kgops.jobs.text import one_line
from kgops.jobs.timestamps import clock
from screens.rows import Piece, Row, text_row
from screens.widgets.curve import braille
from screens.widgets.overlay import Point, on_axis, overlay

if TYPE_CHECKING:
    from kgops.experiments.result_detail import Detail
    from kgops.experiments.size_curves import Curve

__all__ = ["by_size", "over_time"]

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
