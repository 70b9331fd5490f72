"""Several braille curves in one chart, distinguished by letters instead of colours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import groupby
from operator import or_

from screens.rows import Piece
from screens.widgets.curve_panels import Values, braille

__all__ = ["overlay"]

_BLANK = 0x2800


def overlay(
    curves: Sequence[Values], signs: str, width: int, height: int, low: float, high: float, *, chosen: int
) -> list[list[Piece]]:
    """Lines of pieces, each `width` wide. The chosen curve has the accent colour."""
    drawn = [braille(values, width, height, low, high) for values in curves]
    order = [*(i for i in range(len(curves)) if i != chosen), chosen]
    letters = _sign_positions(drawn, order[::-1])
    lines = []
    for y in range(height):
        cells = []
        for x in range(width):
            if (y, x) in letters:
                i = letters[y, x]
                cells.append((signs[i], "accent" if i == chosen else "text"))
                continue
            dots = [0 if one[y][x] == " " else ord(one[y][x]) - _BLANK for one in drawn]
            shown = reduce(or_, dots, 0)
            on_top = 0 <= chosen < len(dots) and dots[chosen]
            cells.append((chr(_BLANK + shown) if shown else " ", "accent" if on_top else "dim"))
        lines.append(
            [
                Piece("".join(c for c, _ in cell), tone)
                for tone, cell in groupby(cells, key=lambda cell: cell[1])
            ]
        )
    return lines


def _sign_positions(drawn: Sequence[Sequence[str]], order: Sequence[int]) -> dict[tuple[int, int], int]:
    """Positions of the letters: at the end of each curve and twice before, in different columns if possible."""
    taken: dict[tuple[int, int], int] = {}
    width = len(drawn[0][0]) if drawn else 0
    count = max(len(drawn), 1)
    for i in order:
        for third in (3, 2, 1):
            start = width * third // 3 - 1 - (0 if third == 3 else (i * width) // (3 * count))
            position = _free(drawn[i], start, width * (third - 1) // 3, taken)
            if position is not None:
                taken[position] = i
    return taken


def _free(
    lines: Sequence[str], start: int, stop: int, taken: dict[tuple[int, int], int]
) -> tuple[int, int] | None:
    """First free cell of the curve, from column `start` to the left."""
    for x in range(start, stop - 1, -1):
        for y, line in enumerate(lines):
            if line[x] != " " and (y, x) not in taken and (y, x + 1) not in taken and (y, x - 1) not in taken:
                return y, x
    return None
