"""Resident memory of this process, now and at its peak since a reset."""

from __future__ import annotations

import resource
from pathlib import Path

__all__ = ["peak_mib", "reset_peak"]


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
