"""torch's caching allocator for cards, replayed: how much it reserves for what lives.

Rules as in torch's CUDACachingAllocator: blocks of 512 bytes; up to 1 MiB from segments of 2 MiB, below
10 MiB from segments of 20 MiB, larger ones from segments of their own in steps of 2 MiB; best fit, split,
merged with free neighbours. Derived from its source, not measured on a card yet.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["GRANULE", "reserved_bytes"]

GRANULE = 512
_MIB = 1 << 20
_SMALL, _LARGE = _MIB, 10 * _MIB  # the largest of the small, and the least that has a segment of its own
_SMALL_SEGMENT, _MIDDLE_SEGMENT, _STEP = 2 * _MIB, 20 * _MIB, 2 * _MIB


class _Block:
    __slots__ = ("after", "before", "free", "size")

    def __init__(self, size: int) -> None:
        self.size, self.free = size, True
        self.before: _Block | None = None
        self.after: _Block | None = None


def reserved_bytes(events: Iterable[tuple[int, int]], *, expandable: bool = False) -> int:
    """For allocations (number, bytes) and frees (number, 0) in their order; nothing is given back to the card.

    `expandable`: segments grow where they are, so free memory is never in pieces too small.
    """
    if expandable:
        return _high_water(events)
    pools: tuple[set[_Block], set[_Block]] = (set(), set())
    used: dict[int, tuple[_Block, int]] = {}
    reserved = 0
    for number, size in events:
        if not size:
            block, kind = used.pop(number)
            _release(block, pools[kind])
            continue
        kind = int(size > _SMALL)
        pool = pools[kind]
        found = min((block for block in pool if block.size >= size), key=_size, default=None)
        # A block much larger than asked stays whole for what needs it; torch's limit is off by default.
        if found is None:
            found = _Block(_segment(size))
            reserved += found.size
        else:
            pool.remove(found)
        left = found.size - size
        if left >= GRANULE if kind == 0 else left > _SMALL:
            pool.add(_cut(found, size))
        found.free = False
        used[number] = found, kind
    return reserved


def _size(block: _Block) -> int:
    return block.size


def _segment(size: int) -> int:
    if size <= _SMALL:
        return _SMALL_SEGMENT
    return _MIDDLE_SEGMENT if size < _LARGE else -(-size // _STEP) * _STEP


def _cut(block: _Block, size: int) -> _Block:
    rest = _Block(block.size - size)
    rest.before, rest.after = block, block.after
    if block.after is not None:
        block.after.before = rest
    block.after, block.size = rest, size
    return rest


def _release(block: _Block, pool: set[_Block]) -> None:
    block.free = True
    for near in (block.before, block.after):
        if near is None or not near.free:
            continue
        pool.remove(near)
        first, second = (near, block) if near is block.before else (block, near)
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        block = first
    pool.add(block)


def _high_water(events: Iterable[tuple[int, int]]) -> int:
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
