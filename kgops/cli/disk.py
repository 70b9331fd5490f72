"""What a run writes, in a line of a page: as predicted, and beside it what it wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kgops.cli.output import amount, off_by
from kgops.jobs.text import one_line
from kgops.planning.disk_use import DiskUse
from kgops.supervisor.disk_space import in_bytes
from kgops.supervisor.plan_job import Planned

__all__ = ["DISK", "disk_line", "disk_of_run"]

DISK = "disk_mib"  # the metric of a run
_NAMED = 0.02  # of all: parts below it are not worth a word


def disk_line(planned: Planned, *, before: str = "disk: ") -> str:
    """`disk: 21 MiB predicted: CSV 6 MiB · …; 74,000 MiB free in …/runs`, or why it is not known."""
    disk = planned.disk
    if disk is None:
        return f"{before}not predicted: how much it writes is not known before it starts"
    use = disk.use
    sizes = sorted([*use.parts.items(), *_copies(use)], key=lambda part: -part[1])
    named = [(name, size) for name, size in sizes if size >= _NAMED * use.total]
    parts = " · ".join(f"{one_line(name)} {in_bytes(size)}" for name, size in named)
    room = "; ".join(
        f"{in_bytes(place.free)} free in {one_line(str(place.path))}"
        for place in disk.places
        if place.free is not None
    )
    most = "at most " if use.at_most else ""
    return f"{before}{most}{in_bytes(use.total)} predicted: {parts}; {room}"


def disk_of_run(plan: Mapping[str, Any], metrics: Mapping[str, float]) -> list[str]:
    """`5,812 MiB · predicted 5,790 MiB (+0.4% measured)`; no line of a run of which neither is known."""
    told, wrote = plan.get("disk"), metrics.get(DISK)
    if told is None:
        return [] if wrote is None else [f"{amount(wrote, 'MiB')} · predicted {amount(None)}"]
    most = "at most " if told["at_most"] else ""
    off = off_by(wrote, told["total_mib"]) if wrote and not told["at_most"] else None
    predicted = f"{most}{amount(told['total_mib'], 'MiB')}" + (f" ({off} measured)" if off else "")
    return [f"{amount(wrote, 'MiB')} · predicted {predicted}"]


def _copies(use: DiskUse) -> list[tuple[str, int]]:
    return [(f"{Path(path).name} (a copy)", size) for path, size in use.outside.items()]
