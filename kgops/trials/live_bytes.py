"""Peak bytes that torch's CPU allocator had handed out, from the record its profiler keeps."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

from torch.profiler import ProfilerActivity, profile

__all__ = ["peak_live_bytes"]


def peak_live_bytes(work: Callable[[], object], mapped: Callable[[], Collection[int]] = tuple) -> int:
    """The most that lived at one moment of `work`, of what was allocated since its start.

    Counts what operators allocate inside themselves too; not what MKL and oneDNN take from malloc. Files that
    were `mapped`, known by their sizes, are no memory.
    """
    os.environ.setdefault(
        "KINETO_LOG_LEVEL", "99"
    )  # else it tells stderr of its own start and stop, each time
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    profiler: Any = record.profiler
    events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
    sizes = {*mapped()}
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += 0 if abs(event.nbytes()) in sizes else event.nbytes()
        peak = max(peak, live)
    return peak
