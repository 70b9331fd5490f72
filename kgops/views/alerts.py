"""Alerts of the dashboard: what needs a person. They stay until they are acknowledged."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kgops.jobs.text import clock
from kgops.settings import Home
from kgops.views.formats import duration
from kgops.views.gpus import GpuUsage
from storage import alerts, attempts, runs
from storage.database import Connection
from storage.runs import Run

__all__ = ["HOT_C", "Alert", "ended_while_away", "live_alerts", "note_of_fallback", "recorded_alerts"]

AlertKind = Literal["failed", "out of memory", "diverged", "no progress", "GPU", "disk", "note"]

HOT_C = 85  # GPUs lower their clocks from here
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


def recorded_alerts(conn: Connection) -> tuple[Alert, ...]:
    """Unacknowledged alerts of the record, newest first, however many runs ended since."""
    after = alerts.quiet_before(conn)
    seen = alerts.acknowledged(conn)
    found = []
    for run in alerts.ended_badly_after(conn, after):
        kind: AlertKind = "out of memory" if run.state == "out_of_memory" else "failed"
        why = run.reason or "out of memory after the last fallback"
        text = why if kind == "out of memory" else f"{run.state}: {run.reason or 'for an unknown reason'}"
        found.append(Alert(kind, f"{run.state}:run {run.id}:{run.attempts}", text, run))
    for number, names in alerts.diverged(conn, after).items():
        name = f"diverged:run {number}"
        if name not in seen and (run_of := runs.get(conn, number)) is not None:
            text = f"diverged: {', '.join(names)} became NaN or infinite"
            found.append(Alert("diverged", name, text, run_of))
    newest = sorted(found, key=lambda one: -(one.run.ended_at or time.time()) if one.run else 0.0)
    return tuple(newest)


def live_alerts(
    home: Home, running: Iterable[Run], gpus: Sequence[GpuUsage], now: float
) -> tuple[Alert, ...]:
    """Alerts of this moment: a run without progress, a GPU that is full or hot, a disk that is short.

    What lasts comes again on the next day, if it was acknowledged.
    """
    day = clock(now, "%Y-%m-%d")
    found = [*_disk(home, day), *(alert for run in running for alert in _stalled(run, now))]
    for usage in gpus:
        found += _gpu(usage, day)
    return tuple(found)


def note_of_fallback(conn: Connection, run: Run) -> list[Alert]:
    """That a run had to go on with other options."""
    if not run.oom_attempts or run.state in ("out_of_memory", "failed"):
        return []
    often = {1: "once", 2: "twice"}.get(run.oom_attempts, f"{run.oom_attempts} times")
    last = attempts.of_run(conn, run.id)[-1].number
    now = f"{run.state.replace('_', ' ')} in" if run.ended else "now in"
    return [Alert("note", f"fallback:run {run.id}", f"out of memory {often}, {now} attempt {last}", run)]


def ended_while_away(conn: Connection) -> str | None:
    """`while you were away: 2 finished, 1 out of memory`; None if no run ended since a console was left."""
    left = alerts.left_at(conn)
    ended = alerts.ended_since(conn, left) if left is not None else {}
    words = {"succeeded": "finished", "out_of_memory": "out of memory", "cancelled": "stopped"}
    counts = [f"{ended[state]} {words.get(state, state)}" for state in runs.ENDED if state in ended]
    if not counts:
        return None
    return f"while you were away: {', '.join(counts)}"


def _stalled(run: Run, now: float) -> list[Alert]:
    """No report for five times the usual step. What a run's first step takes, nobody knows."""
    if run.state != "running" or not run.rate or run.rate <= 0 or run.reported_at is None:
        return []
    if run.done is not None and run.total is not None and run.done >= run.total:
        return []
    usual_s = 1 / run.rate
    limit_s = max(_USUAL_STEPS * usual_s, _SHORTEST_STALL_S)
    if now - run.reported_at <= limit_s:
        return []
    text = f"no progress since {clock(run.reported_at, '%H:%M:%S')}; a step usually takes {_step(usual_s)}"
    return [Alert("no progress", f"no progress:run {run.id}:{run.reported_at:.0f}", text, run)]


def _step(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 100 else duration(seconds)


def _gpu(usage: GpuUsage, day: str) -> list[Alert]:
    gpu, found = usage.reading, []
    if gpu.temperature_c is not None and gpu.temperature_c >= HOT_C:
        text = f"GPU {usage.label} is hot ({HOT_C} °C or more): it may lower its clock"
        found.append(Alert("GPU", f"hot:{gpu.uuid}:{day}", text, gpu=gpu.index))
    used, total, mine = gpu.memory_used_mib, usage.usable_mib, usage.used_by_runs_mib
    # A run that fills its GPU is no trouble: what it was predicted to need is reserved.
    others = None if used is None or mine is None else used - mine
    if used is not None and total and used >= _FULL * total and (others is None or others > used / 2):
        who = ", ".join(one.name or "n/a" for one in usage.others[:3]) or "n/a"
        found.append(
            Alert(
                "GPU", f"full:{gpu.uuid}:{day}", f"GPU {usage.label} is full by others ({who})", gpu=gpu.index
            )
        )
    return found


def _disk(home: Home, day: str) -> list[Alert]:
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
    return [Alert("disk", f"disk:{day}", f"less than {step:,} MiB free on the disk of {home.path}")]
