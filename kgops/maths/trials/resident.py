"""Memory of a trial: live bytes and resident pages."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile


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
