"""What lives at each moment of a computation, by part, and the moment at which most does.

A budget walks through a computation as its code does, taking and giving back what it allocates. So the peak
is that of a moment which really comes, never the sum of what is not alive together.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Held", "Ledger", "Peak", "Scratch"]


class Held(NamedTuple):
    part: str
    size: int
    number: int


class Peak(NamedTuple):
    """The most that lived at one moment: when, and of which parts."""

    live: int
    phase: str
    parts: dict[str, int]


class Ledger:
    """`granule` is what the allocator rounds each tensor up to; 1 where it does not.

    `events` are all allocations in their order, (number, bytes), and all frees, (number, 0), if recorded.
    """

    def __init__(self, granule: int = 1, *, record: bool = False) -> None:
        self._granule = granule
        self._parts: dict[str, int] = {}
        self._number = self._live = 0
        self.phase = ""
        self.rounded = 0  # of what lives, how much is rounding
        self.peak = Peak(0, "", {})
        self.peaks: dict[str, int] = {}  # by phase
        self.events: list[tuple[int, int]] | None = [] if record else None

    def take(self, part: str, size: int) -> Held:
        size = -(-size // self._granule) * self._granule
        self._number += 1
        parts = self._parts
        parts[part] = parts.get(part, 0) + size
        self._live += size
        if self._live > self.peak.live:
            self.peak = Peak(self._live, self.phase, parts.copy())
        if self._live > self.peaks.get(self.phase, 0):
            self.peaks[self.phase] = self._live
        if self.events is not None and size:
            self.events.append((self._number, size))
        return Held(part, size, self._number)

    def give(self, *held: Held) -> None:
        for part, size, number in held:
            self._parts[part] -= size
            self._live -= size
            if self.events is not None and size:
                self.events.append((number, 0))

    def flash(self, part: str, *sizes: int) -> None:
        """What is alive together for a moment and then gone."""
        self.give(*[self.take(part, size) for size in sizes])


class Scratch:
    """Buffers kept by name and only ever grown, as `kgops.models.encoder.Buffers` keeps them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: dict[str, Held] = {}
        self._asked: dict[str, int] = {}

    def take(self, part: str, name: str, size: int) -> None:
        if size <= self._asked.get(name, -1):
            return
        if name in self._kept:
            self._ledger.give(self._kept[name])
        self._kept[name], self._asked[name] = self._ledger.take(part, size), size

    def close(self) -> None:
        self._ledger.give(*self._kept.values())
        self._kept.clear()
        self._asked.clear()
