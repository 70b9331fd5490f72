"""Peak memory of a job from the large tensors of each of its phases, and what torch's allocator reserves for them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kgops.workloads.memory.fitted import RESERVED


class PeakMemory(NamedTuple):
    """In bytes: live memory by part at the peak, in `phase`; `phases` has the peak of each. `reserved` is what the
    allocator holds for `live`; the same on a CPU."""

    parts: Mapping[str, int]
    phase: str
    phases: Mapping[str, int]
    live: int
    reserved: int


Tensor = tuple[str, int]
"""Part and bytes."""
_Block = tuple[int, bool]
"""Bytes, and whether it is a whole segment."""

_MIB = 1 << 20
_SMALL, _LARGE = (
    _MIB,
    10 * _MIB,
)  # the largest that share segments of 2 MiB, the smallest with its own segment
_SHARED, _STEP = 20 * _MIB, 2 * _MIB


class Phases:
    """A job as tensors that it keeps and tensors of its phases, in the order in which they are made.

    `live` is a sum. On a GPU freed memory stays reserved, and serves a later tensor only if a free block is large
    enough. `expandable` segments have no such holes. The order of tensors adds to that; `make fit-memory` fitted how
    much, for each `kind` of job.
    """

    def __init__(self, kind: str, *, on_gpu: bool, expandable: bool = False) -> None:
        self.kind = kind
        self._on_gpu, self._expandable = on_gpu, expandable
        self._kept: list[Tensor] = []
        self._free: list[_Block] = []
        self._elsewhere: list[_Block] = []  # of another stream
        self._captured = self._reserved = self._most_reserved = self._most_small = 0
        self._phases: dict[str, int] = {}
        self._peak: tuple[int, str, Counter[str]] = 0, "", Counter()

    def keep(self, phase: str, *tensors: Tensor, beside: Sequence[Tensor] = ()) -> None:
        """Tensors that stay until their part is dropped. `beside` are alive when they are made, and then freed."""
        self._take(self._free, beside)
        self._take(self._free, tensors)
        self._kept += tensors
        self._release(beside)
        self.run(phase)

    def drop(self, *parts: str) -> None:
        self._release([tensor for tensor in self._kept if tensor[0] in parts])
        self._kept = [tensor for tensor in self._kept if tensor[0] not in parts]

    def run(self, phase: str, *tensors: Tensor) -> None:
        """Tensors that are alive together in this phase, and then freed."""
        parts = Counter[str]()
        for part, size in (*self._kept, *tensors):
            parts[part] += size
        live = parts.total()
        self._phases[phase] = max(live, self._phases.get(phase, 0))
        if live > self._peak[0]:
            self._peak = live, phase, parts
        self._free = sorted(self._free + self._take(self._free.copy(), tensors))

    def capture(self, *moments: Iterable[Tensor]) -> None:
        """Tensors of CUDA graphs, each moment in the same memory, which nothing else uses."""
        self.empty_cache()
        free, self._free = self._free, []
        for tensors in moments:
            self._free = sorted(self._free + self._take(self._free.copy(), list(tensors)))
        self._captured, self._free = self._captured + sum(size for size, _ in self._free), free

    def change_stream(self) -> None:
        """Tensors of a stream never use what another has freed."""
        self._free, self._elsewhere = self._elsewhere, self._free

    def release_graphs(self) -> None:
        self._reserved -= self._captured
        self._captured = 0
        self.empty_cache()

    def empty_cache(self) -> None:
        """Whole segments go back to the GPU."""
        for blocks in (self._free, self._elsewhere):
            self._reserved -= sum(size for size, is_whole in blocks if is_whole)
            blocks[:] = [block for block in blocks if not block[1]]

    @property
    def peak(self) -> PeakMemory:
        live, phase, parts = self._peak
        reserved = live
        if self._on_gpu:
            fitted = RESERVED[self.kind]
            reserved = max(live, round(fitted.factor * self.segments) + fitted.mib * _MIB)
        return PeakMemory(parts, phase, self._phases, live, reserved)

    @property
    def segments(self) -> int:
        """Bytes of all segments at their peak."""
        return self._most_reserved + -(-self._most_small // _STEP) * _STEP

    def _release(self, tensors: Iterable[Tensor]) -> None:
        for _, size in tensors:
            if self._on_gpu and size > _SMALL:
                insort(self._free, (size, size >= _LARGE))

    def _take(self, free: list[_Block], tensors: Iterable[Tensor]) -> list[_Block]:
        """Memory for these tensors, in their order, out of free blocks; the segments that are new."""
        if not self._on_gpu:
            return []
        sizes = [size for _, size in tensors if size > _SMALL]
        small = sum(size for _, size in (*self._kept, *tensors) if size <= _SMALL)
        self._most_small = max(self._most_small, small)
        new: list[_Block] = []
        if self._expandable:
            lacking = sum(sizes) - sum(size for size, _ in free)
            new = [(-(-lacking // _STEP) * _STEP, True)] if lacking > 0 else []
            free[:], sizes = [(max(0, -lacking), True)], []
        for size in sizes:
            place = bisect_left(free, (size,))
            if place < len(free):
                block = free.pop(place)[0]
            else:
                block = _SHARED if size < _LARGE else -(-size // _STEP) * _STEP
                new.append((block, True))
            if block - size > _SMALL:
                insort(free, (block - size, False))
        self._reserved += sum(size for size, _ in new)
        self._most_reserved = max(self._most_reserved, self._reserved)
        return new
