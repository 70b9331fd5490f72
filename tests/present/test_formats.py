"""Texts have the width that a terminal gives them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kgops.present.formats import drawn, fitted, padded, width_of

SIGNS = st.text("ab 日é…▇·👩👧❤👍\u0301\u0e31\u0903\u200d\ufe0f\ufe0e\U0001f3fd\u200b각")


@given(SIGNS)
def test_width_is_that_of_what_is_drawn(text: str) -> None:
    assert width_of(text) == cell_len(drawn(text))


@given(SIGNS, st.integers(1, 20))
def test_a_cell_has_the_width_of_its_column(text: str, columns: int) -> None:
    assert cell_len(padded(fitted(text, columns), columns)) == columns
