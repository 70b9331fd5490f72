"""Samples host memory, CPU time and GPU memory of a worker's process tree."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from kgops.supervisor import processes

# Importing `typing` would cost every supervisor half a megabyte.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from kgops.gpus.processes import HeldMemory
    from kgops.gpus.sampler import GpuSampler

_DRIVER = Path("/dev/nvidiactl")


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    host_mib: float | None
    gpu_mib: float | None  # on the GPU where it uses most
    gpu_method: str | None  # how it was measured: by processes, or by the GPU's memory change
    cpu_s: float | None


class Sampler:
    """Reads /proc for the tree below the gate, and NVML if the machine has GPUs."""

    def __init__(self, gate_pid: int, *, gpu: str | None, exclusive: bool, interval_s: float) -> None:
        """`gpu`: as in the run's row. `exclusive`: no other run shares it."""
        self.gate_pid = gate_pid
        self._gpus = None
        if gpu is not None or _DRIVER.exists():
            from kgops.gpus.processes import TreeMemory

            self._gpus = _start_gpus(interval_s)
            self._memory = TreeMemory(
                gpu.split(",") if gpu and exclusive else (), processes.born_at(gate_pid)
            )

    def take(self) -> Sample:
        pids = [pid for pid in worker_pids(self.gate_pid) if pid != self.gate_pid]
        held = self._held(set(pids))
        return Sample(
            at=time.time(),
            host_mib=processes.host_memory_mib(pids),
            gpu_mib=held.mib if held else None,
            gpu_method=held.source if held else None,
            cpu_s=processes.cpu_seconds(pids) if pids else None,
        )

    def _held(self, pids: set[int]) -> HeldMemory | None:
        newest = self._gpus.newest() if self._gpus is not None else None
        return None if newest is None else self._memory.of(newest, pids)

    def close(self) -> None:
        if self._gpus is not None:
            self._gpus.stop()
            self._gpus = None


def worker_pids(gate_pid: int) -> list[int]:
    """The gate's tree, and its orphans, which we inherit as subreaper."""
    orphans = [pid for pid in processes.children(os.getpid()) if not processes.is_supervisor(pid)]
    return processes.descendants([gate_pid, *orphans])


def _start_gpus(interval_s: float) -> GpuSampler:
    """Samples in a thread: a slow driver must not delay a stop or the database."""
    from kgops.gpus.sampler import GpuSampler

    sampler = GpuSampler(interval_s)
    sampler.start()
    return sampler
