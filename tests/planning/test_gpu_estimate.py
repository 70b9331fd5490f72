"""On a GPU as much memory is reserved as was predicted, or less; a small GPU's largest batch is found by halving."""

from __future__ import annotations

import pytest

from benchmarks.gpu_estimate import compare_drawn, largest, on_gpu


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(6))
def test_a_gpu_reserves_no_more_than_was_predicted_and_not_much_less(number: int) -> None:
    found = compare_drawn(number, on_gpu())
    assert found.reserved_error >= 0, found
    assert found.reserved_error <= 0.10, found
    assert abs(found.error) <= 0.05, found


@pytest.mark.parametrize("most", [1, 7, 100, 777, 3999])
def test_the_largest_that_fits_is_found_to_two_percent_and_fits(most: int) -> None:
    asked: list[int] = []

    def fits(batch: int) -> bool:
        asked.append(batch)
        return batch <= most

    found = largest(fits, 1, 4000)
    assert found <= most <= max(found * 1.02, found + 1)
    assert len(asked) <= 16
