"""The ones of a mask read as a list of their places would, without one."""

from __future__ import annotations

import random

import pytest

from kgops.present.log_lines import MaskedSequence


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 3000])
def test_it_is_the_list_of_places(length: int, share: float, descending: bool) -> None:
    chance = random.Random(length + int(share * 100))
    mask = bytes(chance.random() < share for _ in range(length))
    expected = [i for i, one in enumerate(mask) if one]
    if descending:
        expected.reverse()
    picked = MaskedSequence(mask, descending=descending)
    assert len(picked) == len(expected)
    assert list(picked) == expected
    assert [picked[i] for i in range(len(expected))] == expected
    for _ in range(200):
        if expected:
            at = chance.randrange(-len(expected), len(expected))
            assert picked[at] == expected[at]
        start, stop = chance.randrange(-5, length + 5), chance.randrange(-5, length + 5)
        assert list(picked[start:stop]) == expected[start:stop]
    for number in range(-2, length + 2):
        assert (number in picked) == (number in expected)
        if number in expected:
            assert picked.index(number) == expected.index(number)
        else:
            with pytest.raises(ValueError, match="is not in the sequence"):
                picked.index(number)
    for beyond in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            picked[beyond]
