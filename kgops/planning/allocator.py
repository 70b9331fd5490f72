"""Replays torch's CUDA caching allocator: memory reserved for a sequence of allocations.

Rules as in torch's CUDACachingAllocator: blocks of 512 bytes; up to 1 MiB from segments of 2 MiB, below
10 MiB from segments of 20 MiB, larger ones from segments of their own in steps of 2 MiB; best fit, split,
merged with free neighbours. Derived from its source, not measured on a GPU yet.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

__all__ = ["GRANULE", "reserved_bytes"]

GRANULE = 512
_MIB = 1 << 20
_SMALL, _LARGE = _MIB, 10 * _MIB  # the largest of the small, and the least that has a segment of its own
_SMALL_SEGMENT, _MIDDLE_SEGMENT, _STEP = 2 * _MIB, 20 * _MIB, 2 * _MIB


class _Block:
    """`at` is its address; segments lie as they were asked for."""

    __slots__ = ("after", "at", "before", "free", "size")

    def __init__(self, size: int, at: int) -> None:
        self.size, self.at, self.free = size, at, False
        self.before: _Block | None = None
        self.after: _Block | None = None


class _Pool:
    """Free blocks, the smallest first; of equal ones that of the lowest address."""

    def __init__(self) -> None:
        self._blocks: list[tuple[int, int, _Block]] = []

    def add(self, block: _Block) -> None:
        block.free = True
        insort(self._blocks, (block.size, block.at, block))

    def remove(self, block: _Block) -> None:
        block.free = False
        del self._blocks[bisect_left(self._blocks, (block.size, block.at))]

    def pop(self, size: int) -> _Block | None:
        """The best fit for `size`."""
        index = bisect_left(self._blocks, (size,))
        if index == len(self._blocks):
            return None
        block = self._blocks.pop(index)[2]
        block.free = False
        return block


def reserved_bytes(events: Sequence[tuple[int, int]], *, expandable: bool = False) -> int:
    """For allocations (number, bytes) and frees (number, 0) in their order; nothing is given back to the GPU.

    `expandable`: segments grow where they are, so free memory is never in pieces too small.
    """
    if expandable:
        return _high_water(events)
    end = len(events)
    while end and not events[end - 1][1]:
        end -= 1  # trailing frees change nothing
    pools = (_Pool(), _Pool())
    used: dict[int, tuple[_Block, int]] = {}
    reserved = 0
    for number, size in events[:end]:
        if not size:
            block, kind = used.pop(number)
            _release(block, pools[kind])
            continue
        kind = int(size > _SMALL)
        pool = pools[kind]
        fit = pool.pop(size)
        # Blocks of any size are split, as torch does without a max_split_size.
        if fit is None:
            fit = _Block(_segment(size), reserved)
            reserved += fit.size
        left = fit.size - size
        if left >= GRANULE if kind == 0 else left > _SMALL:
            pool.add(_cut(fit, size))
        used[number] = fit, kind
    return reserved


def _segment(size: int) -> int:
    if size <= _SMALL:
        return _SMALL_SEGMENT
    return _MIDDLE_SEGMENT if size < _LARGE else -(-size // _STEP) * _STEP


def _cut(block: _Block, size: int) -> _Block:
    rest = _Block(block.size - size, block.at + size)
    rest.before, rest.after = block, block.after
    if block.after is not None:
        block.after.before = rest
    block.after, block.size = rest, size
    return rest


def _release(block: _Block, pool: _Pool) -> None:
    for neighbour in (block.before, block.after):
        if neighbour is None or not neighbour.free:
            continue
        pool.remove(neighbour)
        first, second = (neighbour, block) if neighbour is block.before else (block, neighbour)
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        block = first
    pool.add(block)


def _high_water(events: Sequence[tuple[int, int]]) -> int:
    live, most = [0, 0], [0, 0]
    sizes: dict[int, int] = {}
    for number, size in events:
        if size:
            sizes[number] = size
        delta = size or -sizes[number]
        kind = int(sizes[number] > _SMALL)
        live[kind] += delta
        most[kind] = max(most[kind], live[kind])
    return sum(-(-high // step) * step for high, step in zip(most, (_STEP, _MIDDLE_SEGMENT), strict=True))
