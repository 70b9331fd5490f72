"""Several ways to do the same work: what each does in its turn, and what it tells of it.

A way has a process of its own at each turn, so that its peak of memory is its own, and what a process happens to find
in memory is another's the next time. Its work comes in parts, and `kgops/trials/interleaved.py` asks one way after the
other for a part: the machine is as fast for the one as for the other, though it may not be a second later. Then it is
taken once more, slowly, to count what it allocates: that is the same each time, what is resident is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kgops.trials.live_bytes import peak_live_bytes
from kgops.trials.resident import peak_mib, reset_peak

__all__ = ["LIVE", "LIVE_OF_A_STEP", "Done", "Taken", "Turn", "Untestable", "Way", "needs_a_gpu", "weigh"]

SECONDS_OF = "CPU time of one thread, loading left out"
LIVE = "live bytes of torch's CPU allocator at their peak, above the loaded model and data"
LIVE_OF_A_STEP = "live bytes of torch's CPU allocator at their peak, above weights, gradients and optimizer"
MIB = 2**20

T = TypeVar("T")


class Untestable(Exception):
    """Why this way cannot be taken here."""


def needs_a_gpu(what: str) -> Done:
    """`what` is a GPU's, and these ways are taken on the CPU, whatever else there is."""
    import torch

    here = "this benchmark runs on the CPU yet" if torch.cuda.is_available() else "no CUDA device"
    raise Untestable(f"{here}: {what}")


@dataclass(frozen=True)
class Taken(Generic[T]):
    """CPU seconds of each part, the resident peak above the start in MiB, and what each part returned."""

    seconds: tuple[float, ...]
    resident_mib: float | None
    results: list[T]

    def each(self, units: float) -> tuple[float, ...]:
        """Seconds of a unit, where a part has so many."""
        return tuple(seconds / units for seconds in self.seconds)


class _Weighed(Exception):
    """Ends a way that was taken for this alone."""

    def __init__(self, mib: float) -> None:
        self.mib = mib


class Turn:
    """A way's turn: so many parts, each done when it is asked for."""

    def __init__(self, parts: int, pause: Callable[[], None], *, is_weighed: bool = False) -> None:
        """`pause` says that something is done, and returns when the next is asked for. One that `is_weighed` counts
        what the warm-up and the first part allocate; nothing is timed, and the way ends there."""
        self.parts = parts
        self._pause = pause
        self._is_weighed = is_weighed

    def take(
        self,
        work: Callable[[int], T],
        warm_up: Callable[[], object] = lambda: None,
        *,
        apart_bytes: int = 0,
    ) -> Taken[T]:
        """Warms up, then does the parts; `work` is told which. `apart_bytes` of what is allocated are not counted.

        CPU time is not the clock's: what else this machine does makes a single thread wait, and no more work.
        """
        if self._is_weighed:
            raise _Weighed((peak_live_bytes(lambda: (warm_up(), work(0))) - apart_bytes) / MIB)
        start = reset_peak()
        warm_up()
        seconds, results = [], []
        for part in range(self.parts):
            self._pause()
            begun = time.process_time()
            results.append(work(part))
            seconds.append(time.process_time() - begun)
        peak = peak_mib()
        self._pause()
        return Taken(tuple(seconds), None if start is None or peak is None else peak - start, results)


@dataclass(frozen=True)
class Done:
    """`seconds` of each part; `resident_mib` is the peak above the start; `metrics` say how good the result is;
    `remark` what must be known with it."""

    seconds: Sequence[float]
    resident_mib: float | None
    metrics: dict[str, float] = field(default_factory=dict)
    remark: str | None = None
    memory_of: str = LIVE

    def as_tables(self, live_mib: float) -> list[dict[str, Any]]:
        """One for each part. A process has one peak, told with its first: it is one observation, not many."""
        common: dict[str, Any] = {
            "state": "succeeded",
            "trouble": None,
            "remark": self.remark,
            "seconds_of": SECONDS_OF,
        }
        common |= {"memory_of": self.memory_of, "metrics": self.metrics, "options": {}}
        tables = [{**common, "seconds": one, "took_s": one, "memory_mib": None} for one in self.seconds]
        resident = {} if self.resident_mib is None else {"resident_mib": self.resident_mib}
        tables[0] |= {"memory_mib": live_mib, "metrics": {**self.metrics, **resident}}
        return tables


Way = Callable[[Turn], Done]


def weigh(way: Way, parts: int) -> float:
    """MiB that live at the peak of the way's warm-up and its first part."""
    try:
        way(Turn(parts, lambda: None, is_weighed=True))
    except _Weighed as found:
        return found.mib
    raise AssertionError("a way takes its turn")
