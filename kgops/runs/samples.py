"""What a supervisor measures of its worker by itself: host memory, CPU time and card memory of the whole tree."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kgops.runs import processes

if TYPE_CHECKING:
    from kgops.gpus.nvml import Nvml


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    host_mib: float | None
    card_mib: float | None
    cpu_s: float | None


class Sampler:
    """Reads /proc for the tree below the gate, and NVML where there is a driver and a card was asked for."""

    def __init__(self, gate_pid: int, *, card: str | None) -> None:
        self.gate_pid = gate_pid
        self._card = card
        self._nvml = _open_nvml() if card is not None else None

    def pids(self) -> list[int]:
        """The gate's tree, and whoever of it was orphaned and came to us as subreaper."""
        return worker_pids(self.gate_pid)

    def take(self) -> Sample:
        pids = [pid for pid in self.pids() if pid != self.gate_pid]
        card_mib = None
        if self._nvml is not None:
            by_card = self._nvml.tree_memory_mib(set(pids))
            known = [mib for mib in by_card.values() if mib is not None]
            card_mib = sum(known) if known else None
        return Sample(
            at=time.time(),
            host_mib=processes.host_memory_mib(pids),
            card_mib=card_mib,
            cpu_s=processes.cpu_seconds(pids) if pids else None,
        )

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None


def worker_pids(gate_pid: int) -> list[int]:
    orphans = [pid for pid in processes.children(os.getpid()) if not processes.is_supervisor(pid)]
    return processes.descendants([gate_pid, *orphans])


def _open_nvml() -> Nvml | None:
    from kgops.gpus import nvml

    opened = nvml.open_nvml()
    return opened if isinstance(opened, nvml.Nvml) else None
