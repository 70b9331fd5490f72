"""Peak memory of torch's CPU allocator, from the torch profiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

from torch.profiler import ProfilerActivity, profile

__all__ = ["peak_live_bytes"]


def peak_live_bytes(work: Callable[[], object], mapped: Callable[[], Collection[int]] = tuple) -> int:
    """Peak of live bytes allocated during `work`.

    Includes temporaries within operators, but not what MKL and oneDNN take from malloc. `mapped` gives sizes of
    memory-mapped files, which are not counted.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise it reports its start and stop on stderr
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
