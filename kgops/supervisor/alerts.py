"""Alerts of this moment: what needs a person while runs go on. Screens show them, and supervisors start a hook."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kgops.gpus.readings import GpuReading
from kgops.jobs.text import clock
from kgops.settings import Home
from kgops.supervisor.machine_load import HOT_C
from storage.runs import Run

AlertKind = Literal["failed", "out of memory", "diverged", "no progress", "GPU", "disk", "note"]

_FULL = 0.97  # of a GPU's memory
_USUAL_STEPS, _SHORTEST_STALL_S = 5, 60.0
_MIB = 1 << 20
_NEARLY_FULL_MIB = 1024  # less than a checkpoint of a large model
_NEARLY_FULL_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Alert:
    """`name` identifies it when it is acknowledged; `run` or `gpu` is what it opens. A note only informs."""

    kind: AlertKind
    name: str
    text: str
    run: Run | None = None
    gpu: int | None = None
    detail: str = ""  # what to know and do, on lines of its own


def stall_alerts(run: Run, now: float) -> list[Alert]:
    """No report for five times the usual step. What a run's first step takes, nobody knows."""
    if run.state != "running" or not run.rate or run.rate <= 0 or run.reported_at is None:
        return []
    if run.done is not None and run.total is not None and run.done >= run.total:
        return []
    usual_s = 1 / run.rate
    if now - run.reported_at <= max(_USUAL_STEPS * usual_s, _SHORTEST_STALL_S):
        return []
    step = f"{usual_s:.2g} s" if usual_s < 100 else f"{usual_s:,.0f} s"
    text = f"no progress since {clock(run.reported_at, '%H:%M:%S')}; a step usually takes {step}"
    return [Alert("no progress", f"no progress:run {run.id}:{run.reported_at:.0f}", text, run)]


def diverged_alert(run: Run, curves: Iterable[str]) -> Alert:
    first, *others = curves
    named = [first, *others[:2], *([f"{len(others) - 2:,} more"] if len(others) > 2 else [])]
    text = f"diverged: {', '.join(named)} became NaN or infinite"
    return Alert("diverged", f"diverged:run {run.id}", text, run)


def gpu_alerts(
    gpu: GpuReading, runs_mib: float | None, others: Iterable[str | None], now: float
) -> list[Alert]:
    """A GPU is hot, or filled by other users. `runs_mib`: what kgops' runs hold; `others`: users of other processes.

    What lasts comes again on the next day, if it was acknowledged.
    """
    day, found = clock(now, "%Y-%m-%d"), []
    if gpu.temperature_c is not None and gpu.temperature_c >= HOT_C:
        text = f"GPU {gpu.index} is hot ({HOT_C} °C or more): it may lower its clock"
        found.append(Alert("GPU", f"hot:{gpu.uuid}:{day}", text, gpu=gpu.index))
    used, total = gpu.memory_used_mib, (gpu.memory_total_mib or 0) - (gpu.memory_reserved_mib or 0)
    # A run that fills its GPU is no trouble: what it was predicted to need is reserved.
    by_others = None if used is None or runs_mib is None else used - runs_mib
    if used is not None and total and used >= _FULL * total and (by_others is None or by_others > used / 2):
        who = ", ".join(one or "n/a" for one in others) or "n/a"
        text = f"GPU {gpu.index} is filled by other users ({who})"
        found.append(Alert("GPU", f"full:{gpu.uuid}:{day}", text, gpu=gpu.index))
    return found


def disk_alerts(home: Home, now: float) -> list[Alert]:
    try:
        disk = os.statvfs(home.path)
    except FileNotFoundError:  # before the first run
        return []
    free_mib = disk.f_bavail * disk.f_frsize // _MIB
    whole_mib = disk.f_blocks * disk.f_frsize // _MIB
    if free_mib > max(_NEARLY_FULL_MIB, _NEARLY_FULL_SHARE * whole_mib):
        return []
    # Rounded, so that the text does not change every second while a disk fills up.
    step = free_mib // 256 * 256 + 256
    text = f"less than {step:,} MiB free on the disk of {home.path}"
    return [Alert("disk", f"disk:{clock(now, '%Y-%m-%d')}", text)]
