"""Curves hold what they were given, in braille and in ASCII, and charts have both axes, whatever their size."""

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from records import FORECAST, add
from rich.segment import Segment
from textual.color import Color

from kgops.present.areas import dotted_area, small_area, spread_over
from kgops.present.rows import Row
from kgops.present.run_detail import RunDetail, read_run_detail
from kgops.present.terminals import in_ascii
from kgops.settings import Home
from kgops.tour.filling import put_sample
from screens.symbols import PlainSigns
from screens.widgets.curve_panels import braille, panels
from storage import series
from storage.database import Connection, transaction

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
    drawn = dots(dotted_area(values, width, height, low, high))
    for x, value in enumerate(spread_over(values, 2 * width)):
        assert value is not None
        levels = sorted(level for at, level in drawn if at == x)
        assert levels == [*range(len(levels))]  # no hole below the curve
        if high > low:
            assert len(levels) == min(int((value - low) / (high - low) * 4 * height), 4 * height - 1) + 1


def test_what_was_not_measured_leaves_a_gap_in_an_area() -> None:
    assert dotted_area([1.0, None, 2.0], 3, 2, 1.0, 2.0) == ["  ⣿", "⣀ ⣿"]
    assert small_area([1.0, None, 2.0], 3) == "▁ █"
    assert small_area([0.0, 1.0], 2) == "▁█"
    assert small_area([], 5) == small_area([None], 5) == "     "


def test_every_sign_has_a_twin_of_the_same_width() -> None:
    text = "▇░▏│─·…→✓✗▼▲■●›—–°×⏎↑↓日本ü" + small_area([1.0, 5.0, 2.0], 4)
    made = PlainSigns(in_ascii).apply([Segment(text)], Color(0, 0, 0))[0]
    assert made.text.isascii()
    assert made.cell_length == Segment(text).cell_length


# --- charts of a run ---


def detail_with(home: Path, conn: Connection, *points: series.Point) -> RunDetail:
    estimate = {"phase": "training", "parts_mib": {"weights": 13_562.0}}
    plan = {"forecast": {**FORECAST, "predicted_mib": 13_562.0, "estimate": estimate}}
    with transaction(conn):
        add(conn, 1, workload="train", submitted_at=time.time() - 600, predicted_mib=13_562.0, plan=plan)
        series.append(conn, 1, list(points))
    detail = read_run_detail(Home(home), conn, 1)
    assert detail is not None
    return detail


def texts(rows: list[Row]) -> list[str]:
    return ["".join(piece.text for piece in row.pieces) for row in rows]


def test_a_curve_over_epochs_names_its_first_and_last_epoch(home: Path, conn: Connection) -> None:
    detail = detail_with(home, conn, *(series.Point("loss", i, 1 / i, float(i)) for i in range(1, 51)))
    below = texts(panels(detail, 80))[-1]
    assert below.split() == ["1", "26", "epoch", "50"]


def test_samples_are_drawn_over_time_since_the_start(home: Path, conn: Connection) -> None:
    began = time.time() - 600
    memory = [series.Point("gpu_memory_mib", began + i, 300.0 + i, began + i) for i in range(0, 601, 10)]
    detail = detail_with(home, conn, *memory)
    started = replace(detail, run=detail.run._replace(started_at=began))
    assert texts(panels(started, 80))[-1].split() == ["0:00", "5:00", "10:00"]


def test_a_step_is_drawn_at_its_place_on_the_axis(home: Path, conn: Connection) -> None:
    """Dense points at the start and one far to the right: a line over most of the width joins them."""
    early = [series.Point("loss", i, 1.0, float(i)) for i in range(1, 50)]
    detail = detail_with(home, conn, *early, series.Point("loss", 500, 0.0, 500.0))
    chart = texts(panels(detail, 80))[2:7]
    flat = sum(char != " " for char in chart[0][9:])
    assert flat < 25  # by the number of points it would be all but the last column


def test_rates_start_at_zero(home: Path, conn: Connection) -> None:
    now = time.time()
    rates = [series.Point("batch_per_s", now + i, 5.0 + i % 2, now + i) for i in range(20)]
    chart = texts(panels(detail_with(home, conn, *rates), 80))[2:7]
    assert [line[:8].strip() for line in chart] == ["6", "", "3", "", "0"]


def test_the_estimate_is_drawn_over_the_curve_under_one_name(home: Path, conn: Connection) -> None:
    memory = [series.Point("gpu_memory_mib", i, 13_400.0, float(i)) for i in range(100)]
    loss = [series.Point("loss", i, 1 / (1 + i), float(i)) for i in range(100)]
    detail = detail_with(home, conn, *memory, *loss)
    for width in (34, 80, 120, 200):
        drawn = "\n".join(texts(panels(detail, width)))
        assert drawn.count("predicted 13,562") == 1
        assert "GPU memory MiB" in drawn
        assert "13,400" in drawn
        assert drawn.count("─") >= 3


def test_charts_are_higher_on_a_higher_screen(home: Path, conn: Connection) -> None:
    detail = detail_with(home, conn, *(series.Point("loss", i, 1 / i, float(i)) for i in range(1, 51)))
    assert len(panels(detail, 80)) == 8  # two headings, five lines, the axis
    assert [len(panels(detail, 80, room)) for room in (5, 12, 60)] == [8, 12, 19]


def test_shares_in_the_sample_data_are_at_most_one(home: Path, conn: Connection) -> None:
    for number in put_sample(Home(home), conn):
        for one in series.of_run(conn, number):
            if "hits" in one.name or one.name.endswith("mrr"):
                assert all((bucket.max or 0.0) <= 1 for bucket in series.curve(conn, number, one.name))
