"""Option memory_cleanup: empties torch's CUDA cache when the GPU is short of memory, at no more than 1 % of the time.

Before it raises out of memory, torch itself empties its cache. The option helps others: other processes on the GPU, and
libraries in this process that do not allocate through torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

SHARE = 0.01  # of the time since the start, for reading the GPU's memory and emptying the cache
_AFTER_STEPS = 0.1  # of that share, for reading after steps; the rest is for emptying the cache


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Snapshot of a GPU's memory, in bytes."""

    free: int  # on the GPU, for any process
    reserved: int  # by torch's allocator, used or not
    unused: int  # of that, what emptying the cache would free
    segments: int  # allocations from the driver

    @property
    def is_short(self) -> bool:
        """Emptying the cache would at least double the free memory."""
        return self.free < self.unused


class DeviceMemory(Protocol):
    def read(self) -> GpuMemory: ...

    def free_cache(self) -> None: ...


class CudaMemory:
    def __init__(self, device: torch.device) -> None:
        self._device = device

    def read(self) -> GpuMemory:
        # The nested dict is torch's own; `memory_reserved()` flattens it to 100 names first, five times as slow.
        counted = torch.cuda.memory_stats_as_nested_dict(self._device)
        reserved, active, split = (
            int(counted[f"{name}_bytes"]["all"]["current"]) if counted else 0
            for name in ("reserved", "active", "inactive_split")
        )
        return GpuMemory(
            free=torch.cuda.mem_get_info(self._device)[0],
            reserved=reserved,
            unused=max(0, reserved - active - split),
            segments=int(counted["segment"]["all"]["current"]) if counted else 0,
        )

    def free_cache(self) -> None:
        with torch.cuda.device(self._device):
            torch.cuda.empty_cache()


class MemoryCleanup:
    """Reads the GPU's memory after steps and between phases, and empties torch's cache where memory is short.

    Reading and emptying take at most `SHARE` of the time since the start. So the interval follows from their measured
    cost (the first time: an estimate). Allocating the memory again is charged as much as emptying the cache, which
    waits for all queued work. Where the next steps allocate it again, the cache is not emptied after steps until the
    next phase. Without `device_memory` the cleanup is off.
    """

    def __init__(
        self,
        device_memory: DeviceMemory | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        on_first: Callable[[str], None] = lambda summary: None,
    ) -> None:
        self._device_memory, self._clock, self._when_first = device_memory, clock, on_first
        self.reads = self.times = self.freed_bytes = self.reallocated = self.postponed = 0
        self._reading_s = self._freeing_s = 0.0  # total, including allocating again
        self._read_s = 0.0  # of the last read
        self._free_s: float | None = None  # of the last emptying
        self._last_freed: tuple[int, int] | None = None  # bytes, and bytes still reserved
        self._paused = False
        self._started = self._read_at = math.inf
        if device_memory is not None:
            # Frees what an earlier phase of this process left cached; before the first step this delays nothing.
            self._check(after_step=False, always=True)
            self._reading_s = self._freeing_s = 0.0
            self._started = self._clock()
            self._plan_next()

    def after_step(self) -> None:
        if self._clock() >= self._read_at:
            self._check(after_step=True)

    def between_phases(self) -> None:
        """Called between phases: the next phase needs other block sizes than the last one cached."""
        self._paused = False
        if self._device_memory is not None and self._affords(self._read_s):
            self._check(after_step=False)

    @property
    def cost(self) -> float:
        """Share of the time since the start."""
        elapsed = self._clock() - self._started
        return (self._reading_s + self._freeing_s) / elapsed if elapsed > 0 else 0.0

    @property
    def summary(self) -> str:
        """Text for the run's option table."""
        notes = []
        if self.times:
            cost = f", for {self.cost:.2%} of the time" if self._freeing_s and self.cost else ""
            notes.append(f"gave back {self.freed_bytes / 2**20:,.0f} MiB, {_times(self.times)}{cost}")
        if self.reallocated:
            notes.append(f"the next steps allocated it again {_times(self.reallocated)}")
        if self.postponed:
            notes.append(f"postponed {_times(self.postponed)}, as it would have cost more than {SHARE:.0%}")
        return "; ".join(notes) or "never needed"

    def _check(self, *, after_step: bool, always: bool = False) -> None:
        memory = self._read()
        self._check_reallocated(memory)
        if memory.is_short and not (after_step and self._paused):
            if always or self._affords(self._cost_of_freeing(memory)):
                self._free_cache(memory)
            else:
                self.postponed += 1
        self._plan_next()

    def _read(self) -> GpuMemory:
        assert self._device_memory is not None
        begin = self._clock()
        memory = self._device_memory.read()
        self._read_s = self._clock() - begin
        self._reading_s += self._read_s
        self.reads += 1
        return memory

    def _check_reallocated(self, memory: GpuMemory) -> None:
        if self._last_freed is None:
            return
        freed, left = self._last_freed
        if memory.reserved - left >= freed / 2:
            self.reallocated += 1
            self._freeing_s += self._free_s or 0.0
            self._paused = True
            self._last_freed = None

    def _cost_of_freeing(self, memory: GpuMemory) -> float:
        # Unknown the first time: one driver call to free each segment, and one to allocate it again.
        once = memory.segments * self._read_s if self._free_s is None else self._free_s
        return 2 * once

    def _free_cache(self, memory: GpuMemory) -> None:
        assert self._device_memory is not None
        begin = self._clock()
        self._device_memory.free_cache()
        left = self._device_memory.read().reserved
        self._free_s = self._clock() - begin
        self._freeing_s += self._free_s
        freed = memory.reserved - left
        if freed <= 0:  # no segment was entirely free
            self._paused = True
            return
        self.times += 1
        self.freed_bytes += freed
        self._last_freed = freed, left
        if self.times == 1:
            self._when_first(self.summary)

    def _affords(self, cost: float) -> bool:
        spent = self._reading_s + self._freeing_s
        return spent + cost <= SHARE * (self._clock() - self._started)

    def _plan_next(self) -> None:
        self._read_at = self._started + (self._reading_s + self._read_s) / (SHARE * _AFTER_STEPS)


def _times(count: int) -> str:
    return f"{count:,} time{'s' if count > 1 else ''}"


OFF = MemoryCleanup()
