"""Bars of shares and of ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kgops.jobs.numbers import share_between
from kgops.present.formats import padded
from kgops.present.rows import Piece, joined

if TYPE_CHECKING:
    from kgops.experiments.trial_result import Spread


def share_bar(done: float, total: float, width: int) -> list[Piece]:
    """Progress bar."""
    full = _columns(done, total, width)
    return [Piece("▇" * full, "data"), Piece("░" * (width - full), "data-reserved")]


def filled(text: str, done: float, total: float, width: int) -> list[Piece]:
    """A progress bar behind its text."""
    cells, full = padded(text, width), _columns(done, total, width)
    return [Piece(cells[:full], "done"), Piece(cells[full:], "track")]


def part_bar(share: float, width: int, tone: str) -> Piece:
    """A part of a whole, to half a column."""
    return Piece(_halves(share, width).ljust(width), tone)


def sides(width: int) -> str:
    """The heading of `signed_bar`; each side has `width` columns."""
    return f"{'against':>{width}}{_LINE}{'for':<{width}}"


def signed_bar(value: float, largest: float, width: int) -> list[Piece]:
    """What opposes goes left, what promotes goes right in another hue."""
    bar = _halves(share_between(abs(value), 0.0, largest), width, rightwards=value >= 0) if largest else ""
    left, right = ("", bar) if value >= 0 else (bar, "")
    return [Piece(left.rjust(width), "warn"), Piece(_LINE, "dim"), Piece(right.ljust(width), "data")]


def _halves(share: float, width: int, *, rightwards: bool = True) -> str:
    """A line, so that bars below one another stay apart. What is there is seen."""
    full, half = divmod(max(round(min(max(share, 0.0), 1.0) * width * 2), 1 if share > 0 else 0), 2)
    return "━" * full + "╸" * half if rightwards else "╺" * half + "━" * full


def _columns(part: float, whole: float, width: int) -> int:
    return min(max(round(share_between(part, 0.0, whole) * width), 1 if part > 0 else 0), width)


_ENDS = (1.5, 2.0, 4.0, 10.0)  # ratios beyond the last are cut; the number is beside the bar
_NARROWEST = 3  # columns on a side
_FURTHEST = 1e300  # an infinite ratio has no column
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL, _HALF, _SHADE, _LINE, _ACROSS = "█", "▐", "░", "│", "┃"
_BEYOND = ("‹", "›")

Cell = tuple[str, str]


class Scale(NamedTuple):
    """Columns left and right of ratio 1, and columns per factor of e."""

    left: int
    right: int
    per_e: float

    @property
    def width(self) -> int:
        return self.left + 1 + self.right


def scale_of(ratios: Iterable[Spread | None], width: int) -> Scale:
    """Common scale of all bars in a table."""
    known = [value for one in ratios if one is not None for value in (one.low, one.high) if value > 0]
    most, least = max(known, default=1.0), min(known, default=1.0)
    above = math.log(next((end for end in _ENDS if most <= end), _ENDS[-1]))
    below = math.log(next((end for end in _ENDS if least * end >= 1), _ENDS[-1]))
    inner = width - 1
    right = min(max(round(inner * above / (above + below)), _NARROWEST), inner - _NARROWEST)
    return Scale(inner - right, right, min((inner - right) / below, right / above))


def axis(scale: Scale) -> Piece:
    """Axis line above the bars, with the position of 1."""
    return Piece(f"{'1×':>{scale.left + 2}}{'':{max(scale.right - 1, 0)}}", "dim")


def ratio_bar(one: Spread | None, scale: Scale, tone: str) -> list[Piece]:
    """`scale.width` columns."""
    cells: list[Cell] = [(" ", "dim")] * scale.width
    cells[scale.left] = (_LINE, "dim")
    if one is not None and one.low > 0:
        cells[scale.left + 1 :] = _side(one.low, one.high, scale.right, scale.per_e, tone, rightwards=True)
        left = _side(1 / one.high, 1 / one.low, scale.left, scale.per_e, tone, rightwards=False)
        cells[: scale.left] = left[::-1]
        if one.low <= 1 <= one.high:
            cells[scale.left] = (_ACROSS, tone)
    return joined(cells)


def _side(low: float, high: float, width: int, per_e: float, tone: str, *, rightwards: bool) -> list[Cell]:
    """Cells from the line outwards: filled up to `low`, shaded up to `high`, if above 1."""
    sure, most = (math.log(min(max(value, 1.0), _FURTHEST)) * per_e for value in (low, high))
    full, eighths = divmod(round(min(sure, width) * 8), 8)
    end = _EIGHTHS[eighths] if rightwards else _HALF if eighths >= 4 else " "
    text = _FULL * full + (end if end != " " else "")
    text += _SHADE * (min(math.ceil(most - 0.125), width) - len(text))
    if most > width + 0.5:
        text = text[: width - 1] + _BEYOND[rightwards]
    return [(char, tone if char != " " else "dim") for char in f"{text:<{width}}"[:width]]
