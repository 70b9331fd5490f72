"""The axis of a chart."""

import math

import pytest

from kgops.present.axes import Axis


@pytest.mark.parametrize("values", [(102.8, 111.4), (0.03, 0.16), (1e-6, 0.02), (5.0, 5.0), (-3.0, 9.0)])
def test_a_tick_says_the_value_it_stands_at(values: tuple[float, float]) -> None:
    low, high = values
    if low < 0.1 < high / low:  # a logarithmic one
        axis = Axis(low, high, 0, 100, "", True)
    else:
        axis = Axis.around(low, high, 0, 100, at_most=5, outside=True)
    ticks = axis.ticks()
    assert len(ticks) >= 2
    for value, name in ticks:
        assert math.isclose(float(name.replace(",", "")), value, rel_tol=1e-9, abs_tol=1e-12)
        assert -1e-9 <= axis(value) <= 100 + 1e-9
