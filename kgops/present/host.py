"""The host in one line: CPU, memory and the disk of the home."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from kgops.settings import Home
from kgops.supervisor.machine_load import busy_share, cpu_ticks

_PROC = Path("/proc")
_EVERY_S = 5.0
_CPU_STEP, _MEMORY_STEP, _DISK_STEP = 5.0, 0.01, 0.01  # percent, shares of the whole


@dataclass(frozen=True, slots=True)
class HostUse:
    """None: unknown."""

    cpus: int | None
    cpu_percent: float | None  # of all CPUs
    memory_used_mib: float | None
    memory_total_mib: float | None
    disk_free_mib: float | None
    disk_total_mib: float | None


class HostReader:
    """Reads seldom, and shows a new value only where it differs visibly: a screen at rest sends nothing."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._ticks: list[int] | None = None
        self._shown: HostUse | None = None
        self._read_at = -_EVERY_S

    def read(self) -> HostUse:
        now = time.monotonic()
        # The share of the CPUs needs two readings: the second comes soon.
        every = _EVERY_S if self._shown is None or self._shown.cpu_percent is not None else 1.0
        if self._shown is not None and now - self._read_at < every:
            return self._shown
        self._read_at = now
        ticks = cpu_ticks(_PROC / "stat")
        busy = busy_share(self._ticks, ticks)
        cpu_percent = None if busy is None else 100 * busy
        used, total = _memory_mib()
        free_disk, whole_disk = _disk_mib(self._home.path)
        before = self._shown or HostUse(None, None, None, None, None, None)
        self._shown = HostUse(
            os.cpu_count(),
            _kept(before.cpu_percent, cpu_percent, _CPU_STEP),
            _kept(before.memory_used_mib, used, _MEMORY_STEP * (total or 0)),
            total,
            _kept(before.disk_free_mib, free_disk, _DISK_STEP * (whole_disk or 0)),
            whole_disk,
        )
        self._ticks = ticks
        return self._shown


def _kept(shown: float | None, now: float | None, step: float) -> float | None:
    """The value on the screen, until the new one differs from it by a step."""
    return now if shown is None or now is None or abs(now - shown) >= step else shown


def _memory_mib() -> tuple[float | None, float | None]:
    import psutil  # type: ignore[import-untyped]  # ships no types; the first frame does not wait for it

    try:
        memory = psutil.virtual_memory()
    except OSError:
        return None, None
    return (memory.total - memory.available) / (1 << 20), memory.total / (1 << 20)


def _disk_mib(path: Path) -> tuple[float | None, float | None]:
    try:
        disk = os.statvfs(path if path.exists() else path.parent)
    except OSError:
        return None, None
    return disk.f_bavail * disk.f_frsize / (1 << 20), disk.f_blocks * disk.f_frsize / (1 << 20)
