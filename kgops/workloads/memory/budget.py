"""The most memory a run may take: the largest of its moments, each a sum of buffers, each an upper bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kgops.gpus.facts import GpuFacts
from kgops.gpus.known import cublas_workspace
from kgops.workloads.memory.phases import PeakMemory

Parts = Counter[str]
"""Bytes by part of memory."""

_MIB = 1 << 20
# torch's allocator on a GPU: what its cache holds beyond tensors. A worker gives cached segments back before it takes
# more than its budget (`kgops.maths.worker.devices`).
_SEGMENTS, _GROWING_SEGMENTS = 1.04, 1.01
_PARTLY_USED = 42 * _MIB  # a segment of small tensors and two of larger ones


def times(parts: Parts, number: int) -> Parts:
    return Counter({part: number * size for part, size in parts.items()})


def larger(*several: Parts) -> Parts:
    return max(several, key=lambda parts: parts.total())


class Moments:
    """The memory that a run holds, and the largest moment of each phase so far."""

    def __init__(self, *held: Parts) -> None:
        self.held: Parts = sum(held, Counter())
        self.phases: dict[str, Parts] = {}

    def add(self, phase: str, *beside: Parts) -> None:
        """A moment of a phase: all that is held, and what is there apart from it."""
        whole = sum(beside, self.held)
        if phase not in self.phases or whole.total() > self.phases[phase].total():
            self.phases[phase] = whole

    def join(self, phases: Iterable[tuple[str, Parts]], *beside: Parts) -> None:
        """Phases of a part of the run that begins without tensors."""
        for phase, parts in phases:
            self.add(phase, parts, *beside)


def bounded(moments: Moments, gpu: GpuFacts | None, *, on_gpu: bool, expandable: bool) -> PeakMemory:
    """The peak of these moments."""
    workspace = cublas_workspace(gpu.compute_capability if gpu else None) if on_gpu else 0
    found = {phase: parts.copy() for phase, parts in moments.phases.items()}
    for phase, parts in found.items():
        if on_gpu and "workspace" not in parts and phase != "loading":  # where nothing is multiplied yet
            parts["workspace"] = workspace
    phase = max(found, key=lambda name: found[name].total())
    live, reserved = found[phase].total(), found[phase].total()
    if on_gpu:
        share = _GROWING_SEGMENTS if expandable else _SEGMENTS
        reserved = round(share * live) + _PARTLY_USED
    return PeakMemory(
        dict(found[phase]), phase, {name: one.total() for name, one in found.items()}, live, reserved
    )
