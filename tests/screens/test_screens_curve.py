"""Curves hold what they were given, in braille and in ASCII, whatever their size."""

from __future__ import annotations

import random

import pytest
from rich.segment import Segment
from textual.color import Color

from kgops.present.areas import area, small_area, spread_over
from kgops.present.terminals import in_ascii
from screens.symbols import PlainSigns
from screens.widgets.curve_panels import braille

SHAPES = [(w, h, n) for w in (1, 7, 40) for h in (1, 3, 6) for n in (1, 2, 13, 300)]


def dots(lines: list[str]) -> set[tuple[int, int]]:
    """(column, level from the bottom) of every dot, read from the patterns as Unicode defines them."""
    places = {
        0x01: (0, 3),
        0x02: (0, 2),
        0x04: (0, 1),
        0x40: (0, 0),
        0x08: (1, 3),
        0x10: (1, 2),
        0x20: (1, 1),
        0x80: (1, 0),
    }
    found = set()
    for y, line in enumerate(reversed(lines)):
        for x, char in enumerate(line):
            pattern = 0 if char == " " else ord(char) - 0x2800
            found |= {(2 * x + dx, 4 * y + dy) for bit, (dx, dy) in places.items() if pattern & bit}
    return found


@pytest.mark.parametrize(("width", "height", "count"), SHAPES)
def test_every_value_has_its_dot_and_neighbours_are_joined(width: int, height: int, count: int) -> None:
    rng = random.Random(width * 1000 + height * 10 + count)
    values = [rng.uniform(-5, 5) for _ in range(count)]
    low, high = min(values), max(values)
    drawn = dots(braille(values, width, height, low, high))
    levels = 4 * height
    shares = spread_over(values, 2 * width)
    for x, value in enumerate(shares):
        assert value is not None
        column = sorted(level for at, level in drawn if at == x)
        if high > low:
            assert min(int((value - low) / (high - low) * levels), levels - 1) in column
        assert column == list(range(column[0], column[-1] + 1))  # no hole in a line
    for x in range(2 * width - 1):
        here, there = ({level for at, level in drawn if at == c} for c in (x, x + 1))
        assert min(abs(a - b) for a in here for b in there) <= 1


def test_what_is_no_number_leaves_a_gap() -> None:
    drawn = dots(braille([1.0, None, 2.0], 3, 2, 1.0, 2.0))
    assert {x for x, _ in drawn} == {0, 1, 4, 5}
    assert braille([None, None], 4, 2, 0, 1) == ["    ", "    "]


@pytest.mark.parametrize(("width", "height", "count"), SHAPES)
def test_an_area_is_as_high_as_each_value(width: int, height: int, count: int) -> None:
    rng = random.Random(width * 1000 + height * 10 + count)
    values = [rng.uniform(-5, 5) for _ in range(count)]
    low, high = min(values), max(values)
    lines = area(values, width, height, low, high)
    for x, value in enumerate(spread_over(values, width)):
        assert value is not None
        eighths = [" ▁▂▃▄▅▆▇█".index(line[x]) for line in reversed(lines)]
        assert eighths == sorted(eighths, reverse=True)  # no hole below the curve
        assert sum(0 < one < 8 for one in eighths) <= 1
        if high > low:
            assert sum(eighths) == min(int((value - low) / (high - low) * 8 * height), 8 * height - 1) + 1


def test_what_was_not_measured_leaves_a_gap_in_an_area() -> None:
    assert area([1.0, None, 2.0], 3, 2, 1.0, 2.0) == ["  █", "▁ █"]
    assert small_area([0.0, 1.0], 2) == "▁█"
    assert small_area([], 5) == small_area([None], 5) == "     "


def test_every_sign_has_a_twin_of_the_same_width() -> None:
    text = "▇░▏│─·…→✓✗▼▲■●›—–°×⏎↑↓日本ü" + small_area([1.0, 5.0, 2.0], 4)
    made = PlainSigns(in_ascii).apply([Segment(text)], Color(0, 0, 0))[0]
    assert made.text.isascii()
    assert made.cell_length == Segment(text).cell_length
