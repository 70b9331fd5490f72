"""The indices where a byte mask is 1, as a lazy sequence."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, overload

__all__ = ["MaskedSequence"]

_CHUNK = 256  # mask bytes whose count of ones is stored


class MaskedSequence(Sequence[int]):
    """Indices at which `mask` (bytes 0 or 1) is 1, in ascending or descending order."""

    def __init__(self, mask: bytes, *, descending: bool) -> None:
        self._mask = mask[::-1] if descending else mask
        self._places = range(len(mask) - 1, -1, -1) if descending else range(len(mask))
        self._before = array("q", [0])  # number of ones before each chunk
        for start in range(0, len(mask), _CHUNK):
            self._before.append(self._before[-1] + self._mask.count(1, start, start + _CHUNK))
        # The chunk read last: neighbouring rows are read together.
        self._seen: tuple[int, list[int]] = (-1, [])

    def __len__(self) -> int:
        return self._before[-1]

    def __iter__(self) -> Iterator[int]:
        return compress(self._places, self._mask)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and 0 <= number < len(self._mask) and self._mask[self._at(number)] == 1

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[int]: ...
    def __getitem__(self, at: int | slice) -> int | Sequence[int]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        position = at + len(self) if at < 0 else at
        if not 0 <= position < len(self):
            raise IndexError(at)
        chunk = bisect_right(self._before, position) - 1
        cached, numbers = self._seen
        if cached != chunk:
            start = chunk * _CHUNK
            part = slice(start, start + _CHUNK)
            numbers = list(compress(self._places[part], self._mask[part]))
            self._seen = chunk, numbers  # one assignment: another thread may read too
        return numbers[position - self._before[chunk]]

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        if value not in self:
            raise ValueError(f"{value} is not in the sequence")
        return self._mask.count(1, 0, self._at(value))

    def _at(self, number: int) -> int:
        return self._places[number]  # reversing is its own inverse
