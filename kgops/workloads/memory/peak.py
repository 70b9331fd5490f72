"""Peak memory of a workload before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class PeakMemory(NamedTuple):
    """In bytes: live memory by part at the peak, in `phase`; `phases` has the peak of each. `reserved` is what the
    allocator holds for `live`; the same on a CPU."""

    parts: Mapping[str, int]
    phase: str
    phases: Mapping[str, int]
    live: int
    reserved: int
