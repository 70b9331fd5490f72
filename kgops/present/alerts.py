"""Alerts of the dashboard: what needs a person. They stay until they are acknowledged."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kgops.jobs.text import clock
from kgops.present.gpus import GpuUsage
from kgops.settings import Home
from kgops.supervisor.alerts import Alert, AlertKind, disk_alerts, diverged_alert, gpu_alerts, stall_alerts
from storage import alerts, attempts, runs
from storage.database import Connection
from storage.runs import Run

if TYPE_CHECKING:
    from kgops.gpus.facts import UnusableGpus


def recorded_alerts(conn: Connection) -> tuple[Alert, ...]:
    """Unacknowledged alerts of the record, newest first, however many runs ended since."""
    seen = alerts.acknowledged(conn)
    found = []
    for run in alerts.ended_badly(conn):
        kind: AlertKind = "out of memory" if run.state == "out_of_memory" else "failed"
        why = run.reason or "out of memory after the last fallback"
        text = why if kind == "out of memory" else f"{run.state}: {run.reason or 'for an unknown reason'}"
        found.append(Alert(kind, f"{run.state}:run {run.id}:{run.attempts}", text, run))
    for number, names in alerts.diverged(conn).items():
        run_of = runs.get(conn, number)
        if run_of is not None and (alert := diverged_alert(run_of, names)).name not in seen:
            found.append(alert)
    newest = sorted(found, key=lambda one: -(one.run.ended_at or time.time()) if one.run else 0.0)
    return tuple(newest)


def live_alerts(
    home: Home,
    running: Iterable[Run],
    gpus: Sequence[GpuUsage],
    now: float,
    unusable: UnusableGpus | None = None,
) -> tuple[Alert, ...]:
    """Alerts of this moment: GPUs that torch cannot use, runs without progress, full or hot GPUs, a nearly full
    disk."""
    found = []
    if unusable is not None:
        name = f"unusable:{clock(now, '%Y-%m-%d')}"
        found = [Alert("GPU", name, unusable.headline, gpu=gpus[0].reading.index, detail=unusable.why)]
    found += [*disk_alerts(home, now), *(alert for run in running for alert in stall_alerts(run, now))]
    for usage in gpus:
        others = [one.name for one in usage.others[:3]]
        found += gpu_alerts(usage.reading, usage.used_by_runs_mib, others, now)
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
