"""Memory over time: allocations as torch's allocator rounds them, and their peak."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

__all__ = [
    "GRANULE",
    "Held",
    "Ledger",
    "Peak",
    "Scratch",
    "ends",
    "reserved_bytes",
]

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


_FILLS_HOLES = 1 << 18  # bytes: many such fill segments of an allocator without holes

Held = tuple[str, int, int]
"""Part, bytes and number of one allocation."""


class Peak(NamedTuple):
    """Peak of live memory, its phase and its parts."""

    live: int
    phase: str
    parts: dict[str, int]


class Ledger:
    """`granule` is what the allocator rounds each tensor up to; 1 where it does not.

    `events` are all allocations in their order, (number, bytes), and all frees, (number, 0), if recorded.
    Parts that it is `without` take nothing.
    """

    def __init__(self, granule: int = 1, *, record: bool = False, without: Collection[str] = ()) -> None:
        self._without = frozenset(without)
        self._granule = granule
        self._parts: dict[str, int] = {}
        self._at_peak: dict[str, int] = {}
        self._is_peak = False  # as long as nothing is given back, the parts of the peak go on growing
        self._number = self._live = self._most = 0
        self._phase = self._peak_phase = ""
        self._phases: dict[str, int] = {}
        self._here = 0  # the peak of this phase so far
        self.events: list[tuple[int, int]] | None = [] if record else None

    @property
    def phase(self) -> str:
        return self._phase

    @phase.setter
    def phase(self, name: str) -> None:
        self._phases[self._phase] = self._here
        self._phase, self._here = name, max(self._phases.get(name, 0), self._live)

    @property
    def peak(self) -> Peak:
        self._settle()
        return Peak(self._most, self._peak_phase, self._at_peak)

    @property
    def peaks(self) -> dict[str, int]:
        """By phase."""
        return {phase: most for phase, most in (self._phases | {self._phase: self._here}).items() if phase}

    def take(self, part: str, size: int) -> Held:
        if part in self._without:
            size = 0
        if self._granule > 1:
            size = -(-size // self._granule) * self._granule
        self._number += 1
        self._add(part, size)
        if self.events is not None and size:
            self.events.append((self._number, size))
        return part, size, self._number

    def take_together(self, part: str, sizes: Iterable[int]) -> list[Held]:
        """What comes and goes together: of the small ones one allocation, each rounded for itself."""
        held, small = [], 0
        for size in sizes:
            if size > _FILLS_HOLES:
                held.append(self.take(part, size))
            else:
                small += -(-size // self._granule) * self._granule
        return [*held, self.take(part, small)] if small else held

    def give(self, *held: Held) -> None:
        if self._is_peak:
            self._settle()
        for part, size, number in held:
            self._parts[part] -= size
            self._live -= size
            if self.events is not None and size:
                self.events.append((number, 0))

    def flash(self, part: str, *sizes: int) -> None:
        """What is alive together for a moment and then gone."""
        if self.events is not None or self._granule > 1:
            self.give(*[self.take(part, size) for size in sizes])
            return
        total = 0 if part in self._without else sum(sizes)
        self._add(part, total)
        if self._is_peak:
            self._settle()
        self._parts[part] -= total
        self._live -= total

    def _add(self, part: str, size: int) -> None:
        self._parts[part] = self._parts.get(part, 0) + size
        live = self._live = self._live + size
        if live > self._here:
            self._here = live
            if live > self._most:
                self._most, self._peak_phase, self._is_peak = live, self._phase, True

    def _settle(self) -> None:
        """Remembers the parts of a peak before anything of it goes."""
        if self._is_peak:
            self._at_peak, self._is_peak = self._parts.copy(), False


class Scratch:
    """Buffers kept by name and only ever grown, as `kgops.models.encoder.Buffers` keeps them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: dict[str, Held] = {}
        self._sizes: dict[str, int] = {}

    def take(self, part: str, name: str, size: int) -> None:
        if size <= self._sizes.get(name, -1):
            return
        if name in self._kept:
            self._ledger.give(self._kept[name])
        self._kept[name], self._sizes[name] = self._ledger.take(part, size), size

    def grow_as(self, other: Scratch) -> None:
        """As large as what was done with `other` has made its own."""
        if self._sizes == other._sizes:
            return
        for name, (part, _, _) in other._kept.items():
            self.take(part, name, other._sizes[name])

    @property
    def size(self) -> int:
        """Bytes of all that is kept."""
        return sum(self._sizes.values())

    def close(self) -> None:
        self._ledger.give(*self._kept.values())
        self._kept.clear()
        self._sizes.clear()


def ends(scratches: Sequence[Scratch]) -> Iterator[Scratch]:
    """The first and the last of buffers with which the same is done one after the other. Those between only grow as
    the first did: whatever is done with them, more is alive when it is done with the last."""
    first, *between = scratches
    yield first
    for scratch in between[:-1]:
        scratch.grow_as(first)
    if between:
        yield between[-1]
