"""The option memory_cleanup: cached GPU memory goes back when the GPU is short of it, for next to nothing.

torch empties its own cache before it reports out of memory. What that leaves open is everybody else: other processes on
the GPU, and libraries in this one that do not allocate through torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

__all__ = ["OFF", "SHARE", "CudaAccounts", "GpuMemory", "MemoryCleanup"]

SHARE = 0.01  # of the time since it began: all that asking and giving back may cost
_FOR_STEPS = 0.1  # of that share: what asking after steps may cost, so that enough is left for giving back


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """A GPU's memory at one moment, in bytes."""

    free: int  # on the GPU, for anybody
    reserved: int  # by torch's cache, used or not
    unused: int  # of that, what giving back would free
    segments: int  # pieces in which the driver handed it out

    @property
    def is_short(self) -> bool:
        """Giving back would at least double what is free."""
        return self.free < self.unused


class Accounts(Protocol):
    def ask(self) -> GpuMemory: ...

    def give_back(self) -> None: ...


class CudaAccounts:
    def __init__(self, device: torch.device) -> None:
        self._device = device

    def ask(self) -> GpuMemory:
        # As torch keeps it: `memory_reserved()` makes a flat table of 100 names of it first, five times as slow.
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

    def give_back(self) -> None:
        with torch.cuda.device(self._device):
            torch.cuda.empty_cache()


class MemoryCleanup:
    """Asks after steps and between phases whether the GPU is short, and then gives back what the cache does not use.

    How often it asks follows from what asking costs here: with giving back it takes at most `SHARE` of the time since
    it began. An estimate stands for the first time it gives back, the measured cost for each later one; taking the
    memory again is charged as much as giving it back, which waits for all queued work, took. What the next steps take
    again is not given back after steps any more, until the next phase. Without `accounts` it is off.
    """

    def __init__(
        self,
        accounts: Accounts | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        when_first: Callable[[str], None] = lambda summary: None,
    ) -> None:
        self._accounts, self._clock, self._when_first = accounts, clock, when_first
        self.looks = self.times = self.given_back = self.taken_again = self.put_off = 0
        self._asking_s = self._giving_s = 0.0  # spent, with what taking it again cost
        self._ask_s = 0.0  # that asking took the last time
        self._give_s: float | None = None  # that giving back took the last time
        self._given: tuple[int, int] | None = None  # the last time: bytes, and what stayed reserved
        self._paused = False
        self._started = self._ask_at = math.inf
        if accounts is not None:
            # What an earlier phase of this process has left behind; before the first step it costs none.
            self._look(after_step=False, always=True)
            self._asking_s = self._giving_s = 0.0
            self._started = self._clock()
            self._plan_next()

    def after_step(self) -> None:
        if self._clock() >= self._ask_at:
            self._look(after_step=True)

    def between_phases(self) -> None:
        """What one phase has cached is not what the next asks for."""
        self._paused = False
        if self._accounts is not None and self._affords(self._ask_s):
            self._look(after_step=False)

    @property
    def cost(self) -> float:
        """The share of the time since it began."""
        elapsed = self._clock() - self._started
        return (self._asking_s + self._giving_s) / elapsed if elapsed > 0 else 0.0

    @property
    def summary(self) -> str:
        """What came of it."""
        told = []
        if self.times:
            cost = f", for {self.cost:.2%} of the time" if self._giving_s and self.cost else ""
            told.append(f"gave back {self.given_back / 2**20:,.0f} MiB, {_times(self.times)}{cost}")
        if self.taken_again:
            told.append(f"the next steps took it again {_times(self.taken_again)}")
        if self.put_off:
            told.append(f"put off {_times(self.put_off)}, as it would have cost more than {SHARE:.0%}")
        return "; ".join(told) or "never needed"

    # --- its parts ------------------------------------------------------------------------------------

    def _look(self, *, after_step: bool, always: bool = False) -> None:
        memory = self._ask()
        self._see_what_was_taken(memory)
        if memory.is_short and not (after_step and self._paused):
            if always or self._affords(self._cost_of_giving(memory)):
                self._give_back(memory)
            else:
                self.put_off += 1
        self._plan_next()

    def _ask(self) -> GpuMemory:
        assert self._accounts is not None
        begin = self._clock()
        memory = self._accounts.ask()
        self._ask_s = self._clock() - begin
        self._asking_s += self._ask_s
        self.looks += 1
        return memory

    def _see_what_was_taken(self, memory: GpuMemory) -> None:
        if self._given is None:
            return
        given, left = self._given
        if memory.reserved - left >= given / 2:
            self.taken_again += 1
            self._giving_s += self._give_s or 0.0
            self._paused = True
            self._given = None

    def _cost_of_giving(self, memory: GpuMemory) -> float:
        # Unknown the first time: a call of the driver for each piece, and one to have it again.
        once = memory.segments * self._ask_s if self._give_s is None else self._give_s
        return 2 * once

    def _give_back(self, memory: GpuMemory) -> None:
        assert self._accounts is not None
        begin = self._clock()
        self._accounts.give_back()
        left = self._accounts.ask().reserved
        self._give_s = self._clock() - begin
        self._giving_s += self._give_s
        given = memory.reserved - left
        if given <= 0:  # no piece was free as a whole
            self._paused = True
            return
        self.times += 1
        self.given_back += given
        self._given = given, left
        if self.times == 1:
            self._when_first(self.summary)

    def _affords(self, cost: float) -> bool:
        spent = self._asking_s + self._giving_s
        return spent + cost <= SHARE * (self._clock() - self._started)

    def _plan_next(self) -> None:
        self._ask_at = self._started + (self._asking_s + self._ask_s) / (SHARE * _FOR_STEPS)


def _times(count: int) -> str:
    return f"{count:,} time{'s' if count > 1 else ''}"


OFF = MemoryCleanup()
