"""Variants of a benchmark, their trials, and the time and memory measured in each repetition.

Variants run on the GPU where torch can use one, otherwise on one thread of the CPU; `maths/trials/interleaved.py` runs
them. On a GPU torch's statistics have the peak of memory. On a CPU a last run, under the profiler, counts allocations:
unlike resident memory they are the same each time."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from kgops.errors import KgopsError
from kgops.jobs.text import lines
from kgops.workloads.registry import LEFT_OUT


def peak_live_bytes(work: Callable[[], object]) -> int:
    """Peak of live bytes allocated during `work`.

    Includes temporaries within operators, but not what MKL and oneDNN take from malloc.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise it reports its start and stop on stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    profiler: Any = record.profiler
    events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def reset_peak() -> float | None:
    """Resets the peak and returns the resident MiB; None where the kernel refuses and the peak is a fork parent's."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        now = _status("VmRSS")
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return now if now is not None and most <= now else None
    return _status("VmRSS")


def peak_mib() -> float | None:
    return _status("VmHWM")


def _status(name: str) -> float | None:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return None


INTERRUPTED = 130


def run(main: Callable[[], int | None]) -> NoReturn:
    """Exits with the result of `main`, or prints a KgopsError to stderr and exits with its code."""
    try:
        sys.exit(main())
    except KgopsError as error:
        print(f"Error: {lines(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"Hint: {lines(error.hint)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("Aborted.", file=sys.stderr)
        sys.exit(INTERRUPTED)


SECONDS_OF = "CPU time of one thread, loading left out"
SECONDS_ON_GPU = "time until the GPU has finished, loading left out"
LIVE = "live bytes of torch's CPU allocator at their peak, above the loaded model and data"
LIVE_OF_A_STEP = "live bytes of torch's CPU allocator at their peak, above weights, gradients and optimizer"
MIB = 2**20

T = TypeVar("T")


class Untestable(Exception):
    """Reason why this variant cannot run here."""


@cache
def device() -> torch.device:
    """The GPU if torch can use one, otherwise the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def on_gpu() -> bool:
    return device().type == "cuda"


def needs_a_gpu(what: str) -> None:
    """Raises Untestable on a CPU: `what` needs a GPU."""
    if not on_gpu():
        raise Untestable(f"no CUDA device: {what}")


def leave_out_compile() -> NoReturn:
    """Raises Untestable: without --quick it would run."""
    raise Untestable(f"{LEFT_OUT} torch.compile, which takes longer than all other variants")


@dataclass(frozen=True)
class Measurement(Generic[T]):
    """CPU seconds and result of each repetition, and the resident peak above the start in MiB."""

    seconds: tuple[float, ...]
    resident_mib: float | None
    results: list[T]

    def each(self, units: float) -> tuple[float, ...]:
        """Seconds per unit, for `units` in each repetition."""
        return tuple(seconds / units for seconds in self.seconds)


class _LiveMemory(Exception):
    """Ends a variant that runs only to count its memory."""

    def __init__(self, mib: float) -> None:
        self.mib = mib


class Trial:
    """One trial of a variant: its repetitions, each run on request."""

    def __init__(self, repetitions: int, pause: Callable[[], None], *, counts_memory: bool = False) -> None:
        """`pause` reports a finished repetition and returns when the next is requested. With `counts_memory` the trial
        counts what warm-up and first repetition allocate, times nothing and ends there."""
        self.repetitions = repetitions
        self._pause = pause
        self._counts_memory = counts_memory
        self.gpu_mib: float | None = None  # peak of allocated GPU memory, above what was loaded

    def measure(
        self,
        work: Callable[[int], T],
        warm_up: Callable[[], object] = lambda: None,
        *,
        apart_bytes: int = 0,
    ) -> Measurement[T]:
        """Warms up, then calls `work` with the number of each repetition; `apart_bytes` are left out of the memory.

        On a CPU it measures CPU time, since other processes make a thread wait but add nothing to its CPU time.
        """
        if on_gpu():
            return self._measure_on_gpu(work, warm_up, apart_bytes)
        if self._counts_memory:
            raise _LiveMemory((peak_live_bytes(lambda: (warm_up(), work(0))) - apart_bytes) / MIB)
        start = reset_peak()
        warm_up()
        seconds, results = [], []
        for repetition in range(self.repetitions):
            self._pause()
            begun = time.process_time()
            results.append(work(repetition))
            seconds.append(time.process_time() - begun)
        peak = peak_mib()
        self._pause()
        return Measurement(tuple(seconds), None if start is None or peak is None else peak - start, results)

    def _measure_on_gpu(
        self, work: Callable[[int], T], warm_up: Callable[[], object], apart_bytes: int
    ) -> Measurement[T]:
        """`resident_mib` is what torch has reserved at its peak, above the start."""
        one = torch.ones(8, 8, device=device(), requires_grad=True)
        torch.autograd.backward((one @ one).sum())  # libraries allocate their workspaces once in a process
        del one
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        warm_up()
        seconds, results = [], []
        for repetition in range(self.repetitions):
            self._pause()
            torch.cuda.synchronize()
            begun = time.perf_counter()
            results.append(work(repetition))
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
        self.gpu_mib = (torch.cuda.max_memory_allocated() - allocated - apart_bytes) / MIB
        resident = (torch.cuda.max_memory_reserved() - reserved) / MIB
        self._pause()
        return Measurement(tuple(seconds), resident, results)


@dataclass(frozen=True)
class TrialResult:
    """`seconds` of each repetition, `resident_mib` above the start, `metrics` of the result, and a `remark`."""

    seconds: Sequence[float]
    resident_mib: float | None
    metrics: dict[str, float] = field(default_factory=dict)
    remark: str | None = None
    memory_of: str = LIVE

    def as_records(self, live_mib: float) -> list[dict[str, Any]]:
        """One for each repetition; the first has the memory, since a process has one peak, not one per repetition."""
        common: dict[str, Any] = {
            "state": "succeeded",
            "trouble": None,
            "remark": self.remark,
            "seconds_of": SECONDS_ON_GPU if on_gpu() else SECONDS_OF,
            "memory_of": self.memory_of.replace("CPU", "CUDA") if on_gpu() else self.memory_of,
            "on_gpu": on_gpu(),
        }
        common |= {"metrics": self.metrics, "options": {}}
        tables = [{**common, "seconds": one, "took_s": one, "memory_mib": None} for one in self.seconds]
        resident = {} if self.resident_mib is None else {"resident_mib": self.resident_mib}
        tables[0] |= {"memory_mib": live_mib, "metrics": {**self.metrics, **resident}}
        return tables


Variant = Callable[[Trial], TrialResult]


def live_memory_mib(variant: Variant, repetitions: int) -> float:
    """Peak of live MiB in the variant's warm-up and first repetition."""
    try:
        variant(Trial(repetitions, lambda: None, counts_memory=True))
    except _LiveMemory as measured:
        return measured.mib
    raise AssertionError("a variant must call Trial.measure")
