"""The overview of the dashboard: running, waiting and recently ended runs, GPUs in use, and alerts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kgops.jobs.events import PROCESS_PEAK
from kgops.jobs.text import clock
from kgops.present.areas import spread_over
from kgops.present.gpus import GpuUsage
from kgops.settings import Home
from kgops.supervisor.alerts import Alert, AlertKind, disk_alerts, diverged_alert, gpu_alerts, stall_alerts
from storage import alerts, attempts, run_list, runs, series
from storage.database import Connection
from storage.runs import Run

if TYPE_CHECKING:
    from kgops.gpus.facts import UnusableGpus

_RECENT, _POINTS = 32, 32  # ended runs, and points of a running one's curve
_CURVE_BUCKETS = 1024


@dataclass(frozen=True, slots=True)
class RunningRun:
    """A run that is starting or running, with its main metric's curve in a few points."""

    run: Run
    eta_s: float | None
    curve: tuple[float | None, ...]
    diverged: bool
    notes: tuple[Alert, ...]


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended recently; `steps` describes the OOM fallbacks that were applied."""

    run: Run
    steps: str | None
    notes: tuple[Alert, ...]
    process_mib: float | None = None  # peak of the worker process, where the whole process was predicted


@dataclass(frozen=True, slots=True)
class Overview:
    running: tuple[RunningRun, ...]
    waiting: tuple[Run, ...]  # `reason`: what each waits for
    recent: tuple[EndedRun, ...]  # newest first
    alerts: tuple[Alert, ...]  # of the record, unacknowledged
    notes: tuple[Alert, ...]  # of OOM fallbacks: they inform
    acknowledged: frozenset[str]
    count: int  # of all runs


def overview(conn: Connection, before: Overview | None = None) -> Overview:
    """The current overview. With the previous one (`before`), unchanged ended runs are not reread."""
    known = {ended.run: ended for ended in before.recent} if before is not None else {}
    active = runs.in_states(conn, runs.ACTIVE)
    running = tuple(_running_run(conn, run, _POINTS) for run in active)
    newest = run_list.page(conn, run_list.Filter(runs.ENDED), sort="ended_at", limit=_RECENT)
    ended = tuple(known.get(run) or _ended(conn, run) for run in newest)
    seen = alerts.acknowledged(conn)
    notes = [*(n for one in running for n in one.notes), *(n for one in ended for n in one.notes)]
    return Overview(
        running,
        tuple(runs.in_states(conn, runs.WAITING)),
        ended,
        recorded_alerts(conn),
        tuple(note for note in notes if note.name not in seen),
        seen,
        runs.count(conn),
    )


def eta_s(run: Run) -> float | None:
    """Seconds left as of the last report; None where unknown, as during a validation, which tells nothing of the
    epochs after it."""
    if run.phase == "validate" or run.done is None or run.total is None or run.done > run.total:
        return None
    rate = run.rate or _rate_so_far(run)
    return (run.total - run.done) / rate if rate and rate > 0 else None


def _rate_so_far(run: Run) -> float | None:
    """The mean rate so far, for a command that reports progress without a rate, in its first attempt."""
    if run.attempts > 1 or not run.done or run.started_at is None or run.reported_at is None:
        return None
    took = run.reported_at - run.started_at
    return run.done / took if took > 0 else None


def _running_run(conn: Connection, run: Run, points: int) -> RunningRun:
    curves = series.of_run(conn, run.id)
    name = run.metric or ("loss" if any(one.name == "loss" for one in curves) else None)
    whole = series.curve(conn, run.id, name, at_most=_CURVE_BUCKETS) if name else []
    curve = tuple(spread_over([bucket.mean for bucket in whole], points))
    diverged = any(one.n and one.last_value is None for one in curves)
    return RunningRun(run, eta_s(run), curve, diverged, tuple(note_of_fallback(conn, run)))


def _ended(conn: Connection, run: Run) -> EndedRun:
    steps = None
    if run.attempts > 1:
        # Imported here: 2.6 MB of jobs and rules, and most runs need one attempt.
        from kgops.planning.oom_fallbacks import fallbacks_taken

        fallbacks = runs.spec(conn, run.id).plan.get("fallbacks") or []
        settings = [attempt.settings for attempt in attempts.of_run(conn, run.id)]
        steps = fallbacks_taken(settings, fallbacks)
    return EndedRun(run, steps, tuple(note_of_fallback(conn, run)), _process_peak(conn, run))


def _process_peak(conn: Connection, run: Run) -> float | None:
    """The process's peak, where that was predicted."""
    peak = next((one.last_value for one in series.of_run(conn, run.id) if one.name == PROCESS_PEAK), None)
    return peak if peak is not None and runs.spec(conn, run.id).plan.get("process") else None


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
    """Alerts of this moment: GPUs that torch cannot use, a run without progress, a GPU that is full or hot, a disk
    that is short."""
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
