"""Measures the machine's load before a benchmark: CPU and GPU use by other processes, heat and throttling."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kgops.gpus.devices import has_driver

if TYPE_CHECKING:
    from kgops.gpus.readings import GpuReading

_MEASURED_S = 0.5
BUSY_SHARE = 0.15  # of the CPUs: a desktop and a console use less
HOT_C = 85  # GPUs lower their clocks at some 85 to 90 degrees
_STAT = Path("/proc/stat")
_COUNTERS = "/sys/devices/system/cpu"


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """`busy`: share of the CPUs in use while no benchmark ran; None: unknown."""

    busy: float | None
    warnings: tuple[str, ...]

    @property
    def is_idle(self) -> bool:
        return not self.warnings


def measure() -> MachineLoad:
    before = cpu_ticks()
    time.sleep(_MEASURED_S)
    after = cpu_ticks()
    busy = busy_share(before, after)
    warnings = []
    if busy is not None and busy > BUSY_SHARE:
        warnings.append(f"other processes use {busy:.0%} of the CPUs")
    return MachineLoad(busy, (*warnings, *_warnings_of_gpus()))


def busy_share(before: Sequence[int] | None, after: Sequence[int] | None) -> float | None:
    """Share of ticks between two readings of /proc/stat that were neither idle nor waiting for a disk."""
    if before is None or after is None:
        return None
    ticks = [b - a for a, b in zip(before, after, strict=True)]
    return (sum(ticks) - ticks[3] - ticks[4]) / sum(ticks) if sum(ticks) > 0 else None


class ThrottleCounter:
    """Counts how often heat throttled the CPUs; None if the kernel does not count it."""

    def __init__(self, root: Path = Path(_COUNTERS)) -> None:
        self._files = sorted(root.glob("cpu[0-9]*/thermal_throttle/*_throttle_count"))
        self._before = _counts(self._files)

    def since(self) -> int | None:
        now = _counts(self._files)
        return None if self._before is None or now is None else max(0, now - self._before)


def _warnings_of_gpus() -> Iterable[str]:
    """Warnings about GPUs: other processes, load and heat."""
    if not has_driver():
        return
    from kgops.gpus.sampler import read_within

    for gpu in read_within().gpus:
        yield from gpu_warnings(gpu)


def gpu_warnings(gpu: GpuReading) -> Iterable[str]:
    name = f"GPU {gpu.index}"
    if gpu.processes:
        count = len(gpu.processes)
        yield f"{name} has {count} other {'process' if count == 1 else 'processes'}"
    if gpu.utilization_percent is not None and gpu.utilization_percent > 100 * BUSY_SHARE:
        yield f"{name} is busy ({gpu.utilization_percent} %)"
    if gpu.temperature_c is not None and gpu.temperature_c >= HOT_C:
        yield f"{name} is hot ({gpu.temperature_c} °C): it may lower its clock"


def cpu_ticks(file: Path = _STAT) -> list[int] | None:
    """Of all CPUs since the start, by what they did."""
    try:
        words = file.read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    return [int(word) for word in words] if len(words) == 8 else None


def _counts(files: Sequence[Path]) -> int | None:
    try:
        return sum(int(file.read_text()) for file in files) if files else None
    except (OSError, ValueError):
        return None
