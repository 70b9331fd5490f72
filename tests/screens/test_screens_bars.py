"""A bar shows how far a ratio is sure, and on which side of one it lies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgops.experiments.trial_result import Spread
from screens.widgets.bar import ratio_bar, scale_of


def drawn(one: Spread | None, width: int, among: Sequence[Spread] = ()) -> str:
    scale = scale_of((one, *among), width)
    return "".join(piece.text for piece in ratio_bar(one, scale, "good"))


def test_a_bar_is_filled_as_far_as_is_sure_and_shaded_to_the_upper_quartile() -> None:
    surely = drawn(Spread(3.0, 2.0, 3.9, 5), 61)
    line = surely.index("│")
    filled, shaded = surely.count("█"), surely.count("░")
    assert surely[line + 1 :].lstrip("█").lstrip("▏▎▍▌▋▊▉").startswith("░")
    assert filled / (filled + shaded) == pytest.approx(math.log(2.0) / math.log(3.9), abs=0.05)
    assert not surely[:line].strip()


def test_a_bar_to_the_left_is_worse_and_one_across_the_line_is_nothing_sure() -> None:
    worse, unsure = drawn(Spread(0.4, 0.3, 0.5, 5), 41), drawn(Spread(1.0, 0.8, 1.3, 5), 41)
    assert "█" in worse.partition("│")[0] and not worse.partition("│")[2].strip()
    assert "█" not in unsure
    left, _, right = unsure.partition("┃")
    assert left.endswith("░") and right.startswith("░")


def test_an_eighth_of_a_column_can_be_seen() -> None:
    width, among = 61, (Spread(1.5, 1 / 1.5, 1.5, 5),)
    seen = [drawn(Spread(low, low, low, 5), width, among) for low in (1.1, 1.102, 1.104, 1.106, 1.108)]
    assert len(set(seen)) > 2


def test_what_lies_beyond_the_scale_says_so() -> None:
    far = drawn(Spread(1452.0, 1449.0, 1459.0, 3), 41)
    assert far.endswith("›")
    assert drawn(Spread(0.001, 0.001, 0.001, 3), 41).startswith("‹")


@given(st.floats(1e-6, 1e6), st.floats(1, 3), st.integers(13, 120))
def test_a_bar_is_always_as_wide_as_its_column(low: float, spread: float, width: int) -> None:
    one = Spread(low, low, low * spread, 5)
    assert len(drawn(one, width)) == width
    assert len(drawn(None, width, (one,))) == width
