"""Memory by part: the plan's estimate next to what the worker measured."""

from __future__ import annotations

from typing import NamedTuple

from kgops.jobs.events import LIBRARIES, is_metric
from kgops.present.run_detail import RunDetail

_START = "start"  # of a worker process on a CPU: before it read data


class MemoryPart(NamedTuple):
    """`measured_mib` None: nobody measured this part."""

    name: str
    predicted_mib: float
    measured_mib: float | None


def memory_parts(detail: RunDetail) -> list[MemoryPart]:
    """Parts of the memory estimate at its peak, largest first."""
    estimate = (detail.forecast or {}).get("estimate")
    parts = estimate.get("parts_mib") if isinstance(estimate, dict) else None
    known = {name: mib for name, mib in parts.items() if is_metric(mib)} if isinstance(parts, dict) else {}
    measured = {one.name.removesuffix("_mib"): one.last for one in detail.curves if one.name.endswith("_mib")}
    if _START in known:
        # The worker reports what its libraries took before it read data; what they grow by later is not measured.
        measured[_START] = measured.pop(LIBRARIES.removesuffix("_mib"), None)
    return [
        MemoryPart(name, mib, measured.get(name))
        for name, mib in sorted(known.items(), key=lambda part: -part[1])
    ]
