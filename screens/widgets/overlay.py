"""Several braille curves in one chart: a letter and a hue for each run, wherever it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from kgops.present.areas import Values
from kgops.present.rows import Piece, joined
from kgops.present.terminals import colours_of_terminal
from screens.widgets.curve_panels import braille

_BLANK = 0x2800
LETTERS = "ABCDEFGH"  # work on any terminal, without colour
HUES = ("accent", "warn", "other", "data", "bad", "strong", "dim", "good")  # green is for the best last
Cell = tuple[str, str]  # one character and its tone


class Layer(NamedTuple):
    """One curve. Without a `sign` it carries no letters."""

    values: Values
    tone: str
    sign: str = ""
    sign_tone: str = ""


def overlay(
    curves: Sequence[Values], signs: str, width: int, height: int, low: float, high: float
) -> list[list[Piece]]:
    """Lines of pieces, each `width` wide."""
    layers = [Layer(values, hue, sign, hue) for values, sign, hue in zip(curves, signs, HUES, strict=False)]
    return [joined(line) for line in cells(layers, width, height, low, high)]


def cells(
    layers: Sequence[Layer], width: int, height: int, low: float, high: float, *, top: int | None = None
) -> list[list[Cell]]:
    """Lines of cells: where curves share one, dots of all in the tone of the uppermost, which is first `top`. Without
    `top`, the tones of lettered curves take turns from column to column."""
    drawn = [braille(layer.values, width, height, low, high) for layer in layers]
    signed = [i for i, layer in enumerate(layers) if layer.sign and i != top]
    if top is not None and layers[top].sign:
        signed.append(top)
    letters = _sign_positions(drawn, signed[::-1])
    order = sorted(range(len(layers)), key=lambda i: (i != top, not layers[i].sign))
    turns = top is None
    return [[_cell(layers, drawn, letters, order, turns, y, x) for x in range(width)] for y in range(height)]


def _cell(
    layers: Sequence[Layer],
    drawn: Sequence[Sequence[str]],
    letters: Mapping[tuple[int, int], int],
    order: Sequence[int],
    turns: bool,
    y: int,
    x: int,
) -> Cell:
    if (y, x) in letters:
        layer = layers[letters[y, x]]
        return layer.sign, layer.sign_tone
    dots = [0 if one[y][x] == " " else ord(one[y][x]) - _BLANK for one in drawn]
    present = [i for i in order if dots[i]]
    if not present:
        return " ", "dim"
    sharing = [i for i in present if layers[i].sign] if turns else []
    uppermost = sharing[x % len(sharing)] if sharing else present[0]
    return chr(_BLANK + reduce(or_, dots)), layers[uppermost].tone


def _sign_positions(drawn: Sequence[Sequence[str]], order: Sequence[int]) -> dict[tuple[int, int], int]:
    """Positions of the letters, in different columns if possible: at the end of each curve, and twice before where
    colours do not tell curves apart."""
    taken: dict[tuple[int, int], int] = {}
    width = len(drawn[0][0]) if drawn else 0
    count = max(len(order), 1)
    for i in order:
        for third in (3,) if colours_of_terminal() != "none" else (3, 2, 1):
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
