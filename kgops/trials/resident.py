"""How much memory this process has resident, and the most it had since its peak began anew."""

from __future__ import annotations

import resource
from pathlib import Path

__all__ = ["peak_mib", "reset_peak"]


def reset_peak() -> float | None:
    """MiB resident now, where the kernel lets the peak begin anew; the peak of a fork's parent says nothing."""
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
