"""Memory over time: allocations as torch's allocator rounds them, and their peak."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

GRANULE = 512
# A number of an allocation, modulo 3, says who alone can use its segment again.
_DEFAULT_STREAM, _OWN_STREAM, _GRAPHS = range(3)
_OWNERS = 3
# Events: segments without a used block go back to the GPU; the second, those of graphs too.
EMPTY_CACHE, RELEASE_GRAPHS = (0, 0), (0, 1)
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

    def __init__(self, least_rest: int) -> None:
        self._blocks: list[tuple[int, int, _Block]] = []
        self._least_rest = least_rest

    def fit(self, size: int) -> _Block | None:
        """The best for `size`, no longer free."""
        index = bisect_left(self._blocks, (size,))
        if index == len(self._blocks):
            return None
        block = self._blocks.pop(index)[2]
        block.free = False
        return block

    def cut(self, block: _Block, size: int) -> None:
        """Keeps what a block has above `size`. Blocks of any size are split, as torch does without a
        max_split_size."""
        left = block.size - size
        if left < self._least_rest:
            return
        rest = _Block(left, block.at + size)
        rest.before, rest.after, rest.free = block, block.after, True
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        insort(self._blocks, (left, rest.at, rest))

    def release(self, block: _Block) -> None:
        """Frees it, one with its free neighbours."""
        blocks, before, after = self._blocks, block.before, block.after
        if before is not None and before.free:
            del blocks[bisect_left(blocks, (before.size, before.at))]
            before.size += block.size
            before.after, block = after, before
            if after is not None:
                after.before = block
        if after is not None and after.free:
            del blocks[bisect_left(blocks, (after.size, after.at))]
            block.size += after.size
            block.after = after.after
            if after.after is not None:
                after.after.before = block
        block.free = True
        insort(blocks, (block.size, block.at, block))

    def empty(self) -> int:
        """Gives back whole segments; their bytes."""
        whole = [entry for entry in self._blocks if entry[2].before is None and entry[2].after is None]
        self._blocks = [entry for entry in self._blocks if entry not in whole]
        return sum(size for size, _, _ in whole)


def reserved_bytes(events: Sequence[tuple[int, int]], *, expandable: bool = False) -> int:
    """At most, for the events of a `Ledger`.

    `expandable`: segments grow where they are, so free memory is never in pieces too small.
    """
    if expandable:
        return _high_water(events)
    end = len(events)
    while end and not events[end - 1][1]:
        end -= 1  # trailing frees change nothing
    pools = [(_Pool(GRANULE), _Pool(_SMALL + 1)) for _ in range(_OWNERS)]
    used: dict[int, tuple[_Block, _Pool]] = {}
    reserved = most = address = 0
    for number, size in events[:end]:
        if not number:
            emptied = pools if (number, size) == RELEASE_GRAPHS else pools[:_GRAPHS]
            reserved -= sum(pool.empty() for both in emptied for pool in both)
            continue
        if not size:
            block, pool = used.pop(number)
            pool.release(block)
            continue
        pool = pools[number % _OWNERS][size > _SMALL]
        fit = pool.fit(size)
        if fit is None:
            fit = _Block(_segment(size), address)
            address += fit.size
            reserved += fit.size
            most = max(most, reserved)
        pool.cut(fit, size)
        used[number] = fit, pool
    return most


def _segment(size: int) -> int:
    if size <= _SMALL:
        return _SMALL_SEGMENT
    return _MIDDLE_SEGMENT if size < _LARGE else -(-size // _STEP) * _STEP


def _high_water(events: Sequence[tuple[int, int]]) -> int:
    live: dict[tuple[int, bool], int] = {}
    most: dict[tuple[int, bool], int] = {}
    sizes: dict[int, int] = {}
    for number, size in events:
        if not number:
            continue
        if size:
            sizes[number] = size
        kind = number % _OWNERS, sizes[number] > _SMALL
        live[kind] = live.get(kind, 0) + (size or -sizes[number])
        most[kind] = max(most.get(kind, 0), live[kind])
    steps = {False: _STEP, True: _MIDDLE_SEGMENT}
    return sum(-(-high // steps[is_large]) * steps[is_large] for (_, is_large), high in most.items())


_FILLS_HOLES = 1 << 18  # bytes: many such fill segments of an allocator without holes

Held = tuple[str, int, int]
"""Part, bytes and number of one allocation."""


class Peak(NamedTuple):
    """Peak of live memory, its phase and its parts."""

    live: int
    phase: str
    parts: dict[str, int]


class Ledger:
    """`granule` is what the allocator rounds each tensor up to; 1 where it does not. `workspace` is what cuBLAS keeps
    for each thread and stream that it works for; 0 where it does not.

    `events` are all allocations in their order, (number, bytes), and all frees, (number, 0), if recorded.
    Parts that it is `without` take nothing.
    """

    def __init__(
        self,
        granule: int = 1,
        *,
        record: bool = False,
        workspace: int = 0,
        without: Collection[str] = (),
    ) -> None:
        self._without = frozenset(without)
        self._granule = granule
        self._workspace = workspace
        self._workspaces: dict[tuple[str, bool], Held] = {}
        self._owner = _DEFAULT_STREAM
        self._parts: dict[str, int] = {}
        self._at_peak: dict[str, int] = {}
        self._is_peak = False  # as long as nothing is given back, the parts of the peak go on growing
        self._number = self._live = self._most = 0
        self._phase = self._peak_phase = ""
        self._phases: dict[str, int] = {}
        self._here = 0  # the peak of this phase so far
        self.events: list[tuple[int, int]] | None = [] if record else None

    @contextmanager
    def own_stream(self) -> Iterator[None]:
        """What is taken here is taken on another stream than before."""
        with self._owned_by(_OWN_STREAM):
            yield

    @contextmanager
    def capture(self) -> Iterator[None]:
        """What is taken here is memory of CUDA graphs, until they are released."""
        self.empty_cache()
        with self._owned_by(_GRAPHS):
            yield

    def release_graphs(self) -> None:
        """And with them, as torch does, all workspaces; then the cache is emptied."""
        self.give(*self._workspaces.values())
        self._workspaces.clear()
        self._mark(RELEASE_GRAPHS)

    def empty_cache(self) -> None:
        self._mark(EMPTY_CACHE)

    @contextmanager
    def _owned_by(self, owner: int) -> Iterator[None]:
        before, self._owner = self._owner, owner
        yield
        self._owner = before

    def _mark(self, event: tuple[int, int]) -> None:
        if self.events is not None:
            self.events.append(event)

    def use_cublas(self, thread: str = "main") -> None:
        """A product of matrices; backward passes have a thread of their own, "autograd"."""
        where = thread, self._owner == _DEFAULT_STREAM
        if self._workspace and where not in self._workspaces:
            self._workspaces[where] = self.take("workspace", self._workspace)

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
        number = _OWNERS * self._number + self._owner
        self._add(part, size)
        if self.events is not None and size:
            self.events.append((number, size))
        return part, size, number

    def take_equal(self, part: str, size: int, times: int) -> list[Held]:
        """So many of one size, which come and go together: one allocation where only the peak counts."""
        if self.events is None:
            return [self.take(part, size * times)]
        return [self.take(part, size) for _ in range(times)]

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
    """Buffers kept by name and only ever grown, as `kgops.maths.models.encoder.Buffers` keeps them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: dict[str, Held] = {}
        self._sizes: dict[str, int] = {}

    @property
    def is_recorded(self) -> bool:
        return self._ledger.events is not None

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


_ALL_WALKED = 4


def ends(scratches: Sequence[Scratch]) -> Iterator[Scratch]:
    """The first and the last of buffers with which the same is done one after the other. Those between only grow as
    the first did: whatever is done with them, more is alive when it is done with the last. A few are all walked
    through where every hole between segments counts."""
    first, *between = scratches
    yield first
    if first.is_recorded and len(scratches) <= _ALL_WALKED:
        yield from between
        return
    for scratch in between[:-1]:
        scratch.grow_as(first)
    if between:
        yield between[-1]
