"""Peak memory of a workload before it starts, and the replay of allocations that finds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kgops.gpus.facts import GpuFacts
from kgops.gpus.known import cublas_workspace
from kgops.workloads.memory.ledger import GRANULE, Ledger, reserved_bytes


class PeakMemory(NamedTuple):
    """In bytes: live memory by part at the peak, in `phase`; `phases` has the peak of each. `reserved` is what the
    allocator holds for `live`; the same on a CPU."""

    parts: Mapping[str, int]
    phase: str
    phases: Mapping[str, int]
    live: int
    reserved: int


def replayed(
    walk: Callable[[Ledger], None],
    gpu: GpuFacts | None,
    *,
    on_gpu: bool,
    expandable: bool,
    other_order: Callable[[Ledger], None] | None = None,
) -> PeakMemory:
    """`other_order`: the same allocations in another order, where chance decides; the larger reservation counts."""
    workspace = cublas_workspace(gpu.compute_capability if gpu else None) if on_gpu else 0
    ledger = _walked(walk, on_gpu, workspace)
    peak = ledger.peak
    reserved = peak.live
    if ledger.events is not None:
        reserved = reserved_bytes(ledger.events, expandable=expandable)
        if other_order is not None:
            other = _walked(other_order, on_gpu, workspace)
            reserved = max(reserved, reserved_bytes(other.events or (), expandable=expandable))
    return PeakMemory(peak.parts, peak.phase, ledger.peaks, peak.live, reserved)


def _walked(walk: Callable[[Ledger], None], on_gpu: bool, workspace: int) -> Ledger:
    ledger = Ledger(GRANULE if on_gpu else 1, record=on_gpu, workspace=workspace)
    walk(ledger)
    return ledger
