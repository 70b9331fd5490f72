"""Format the predicted and the measured disk use of a run as one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgops.jobs.text import in_bytes, one_line
from kgops.present.formats import amount, off_by

if TYPE_CHECKING:
    from kgops.planning.plan_job import Planned
    from kgops.workloads.plan import DiskUse

DISK = "disk_mib"  # name of the metric
_LEAST_SHARE = 0.02  # smaller parts are not named


def disk_line(planned: Planned, *, before: str = "disk: ") -> str:
    """`disk: 21 MiB predicted: CSV 6 MiB · …; 74,000 MiB free in …/runs`, or why it is not predicted."""
    disk = planned.disk
    if disk is None:
        return f"{before}not predicted: its output size is unknown before it starts"
    use = disk.use
    sizes = sorted([*use.parts.items(), *_copies(use)], key=lambda part: -part[1])
    named = [(name, size) for name, size in sizes if size >= _LEAST_SHARE * use.total]
    parts = " · ".join(f"{one_line(name)} {in_bytes(size)}" for name, size in named)
    room = "; ".join(
        f"{in_bytes(place.free)} free in {one_line(str(place.path))}"
        for place in disk.places
        if place.free is not None
    )
    most = "at most " if use.at_most else ""
    return f"{before}{most}{in_bytes(use.total)} predicted: {parts}; {room}"


def disk_of_run(plan: Mapping[str, Any], metrics: Mapping[str, float]) -> list[str]:
    """`5,812 MiB · predicted 5,790 MiB (+0.4% measured)`; empty if neither is known."""
    estimate, written = plan.get("disk"), metrics.get(DISK)
    if estimate is None:
        return [] if written is None else [f"{amount(written, 'MiB')} · predicted {amount(None)}"]
    most = "at most " if estimate["at_most"] else ""
    off = off_by(written, estimate["total_mib"]) if written and not estimate["at_most"] else None
    predicted = f"{most}{amount(estimate['total_mib'], 'MiB')}" + (f" ({off} measured)" if off else "")
    return [f"{amount(written, 'MiB')} · predicted {predicted}"]


def _copies(use: DiskUse) -> list[tuple[str, int]]:
    return [(f"{Path(path).name} (a copy)", size) for path, size in use.outside.items()]
