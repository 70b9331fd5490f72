"""The overview of the dashboard: running, waiting and recently ended runs, GPUs in use, and alerts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from kgops.gpus.readings import GpuReading
from kgops.jobs.numbers import mean
from kgops.settings import Home
from kgops.supervisor.on_gpus import Owners
from kgops.views.run_detail import LIBRARIES, PROCESS_PEAK
from storage import attempts, reports, runs, series
from storage.database import Connection
from storage.reports import Option
from storage.runs import Run
from storage.series import Series

__all__ = [
    "Alert",
    "EndedRun",
    "GpuUsage",
    "Overview",
    "RunningRun",
    "eta_s",
    "is_unapplied",
    "on_gpus",
    "overview",
]

AlertKind = Literal["out of memory", "option", "diverged", "disk"]

_MIB = 1 << 20
_NEARLY_FULL_MIB = 1024  # less than a checkpoint of a large model
_NEARLY_FULL_SHARE = 0.02
_CURVE_BUCKETS = 1024
_UNDECIDED = (None, "auto")  # no specific value requested


@dataclass(frozen=True, slots=True)
class Alert:
    """A warning; `run` is None where it is about the machine."""

    kind: AlertKind
    run: int | None
    text: str


@dataclass(frozen=True, slots=True)
class RunningRun:
    """A run that is starting or running, with its main metric's curve in a few points."""

    run: Run
    eta_s: float | None
    curve: tuple[float | None, ...]
    alerts: tuple[Alert, ...]


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended recently; `steps` describes the OOM fallbacks that were applied."""

    run: Run
    steps: str | None
    alerts: tuple[Alert, ...]
    libraries_mib: float | None = None  # host memory before its worker read any data
    process_mib: float | None = None  # peak of the worker process, where the whole process was predicted


@dataclass(frozen=True, slots=True)
class Overview:
    running: tuple[RunningRun, ...]
    waiting: tuple[Run, ...]  # `reason`: what each waits for
    recent: tuple[EndedRun, ...]  # newest first
    alerts: tuple[Alert, ...]
    count: int  # of all runs


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """A GPU, the kgops runs on it, and the memory they reserved."""

    reading: GpuReading
    runs: tuple[int, ...]
    reserved_mib: int


def overview(
    home: Home, conn: Connection, before: Overview | None = None, *, recent: int = 8, points: int = 32
) -> Overview:
    """The current overview. With the previous one (`before`), unchanged ended runs are not read again."""
    known = {ended.run: ended for ended in before.recent} if before is not None else {}
    active = runs.in_states(conn, runs.ACTIVE)
    running = tuple(_running_run(conn, run, points) for run in active)
    newest = runs.page(conn, runs.Filter(runs.ENDED), sort="ended_at", limit=recent)
    ended = tuple(known.get(run) or _ended(conn, run) for run in newest)
    alerts = [*(a for one in running for a in one.alerts), *(a for one in ended for a in one.alerts)]
    return Overview(
        running,
        tuple(runs.in_states(conn, runs.WAITING)),
        ended,
        (*_disk_alerts(home), *alerts),
        runs.count(conn),
    )


def eta_s(run: Run) -> float | None:
    """Seconds left as of the last report; None where unknown."""
    if run.done is None or run.total is None or run.done > run.total:
        return None
    rate = run.rate or _rate_so_far(run)
    return (run.total - run.done) / rate if rate and rate > 0 else None


def is_unapplied(option: Option) -> bool:
    """Whether another value was applied than the one requested."""
    if option.requested in _UNDECIDED or option.applied is None or option.requested == option.applied:
        return False
    return bool(option.reason)


def on_gpus(
    home: Home, conn: Connection | None, gpus: Sequence[GpuReading], going: Iterable[Run]
) -> tuple[GpuUsage, ...]:
    """The GPUs with the kgops runs on each; without a database, none."""
    if conn is None:
        return tuple(GpuUsage(gpu, (), 0) for gpu in gpus)
    active = tuple(going)
    owners = Owners(home, conn) if active else None
    return tuple(
        GpuUsage(
            gpu,
            tuple(held.run for held in owners.on_gpu(gpu)) if owners is not None else (),
            sum(run.reserved_mib or 0 for run in active if gpu.uuid in run.gpus),
        )
        for gpu in gpus
    )


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
    curve = _downsampled([bucket.mean for bucket in whole], points)
    return RunningRun(run, eta_s(run), curve, _alerts(conn, run, curves))


def _downsampled(values: list[float | None], count: int) -> tuple[float | None, ...]:
    """The curve in at most `count` values, each the mean of its share."""
    if len(values) <= count:
        return tuple(values)
    cuts = [i * len(values) // count for i in range(count + 1)]
    shares = ([v for v in values[a:b] if v is not None] for a, b in pairwise(cuts))
    return tuple(mean(known) if known else None for known in shares)


def _ended(conn: Connection, run: Run) -> EndedRun:
    steps = None
    if run.attempts > 1:
        # Imported here: 2.6 MB of jobs and rules, and most runs need one attempt.
        from kgops.planning.oom_fallbacks import fallbacks_taken

        fallbacks = runs.spec(conn, run.id).plan.get("fallbacks") or []
        settings = [attempt.settings for attempt in attempts.of_run(conn, run.id)]
        steps = fallbacks_taken(settings, fallbacks)
    curves = series.of_run(conn, run.id)
    libraries = next((one.last_value for one in curves if one.name == LIBRARIES), None)
    return EndedRun(run, steps, _alerts(conn, run, curves), libraries, _process_peak(conn, run, curves))


def _process_peak(conn: Connection, run: Run, curves: list[Series]) -> float | None:
    """The process's peak; None for older runs, where only tensors were predicted."""
    peak = next((one.last_value for one in curves if one.name == PROCESS_PEAK), None)
    return peak if peak is not None and runs.spec(conn, run.id).plan.get("process") else None


def _alerts(conn: Connection, run: Run, curves: list[Series]) -> tuple[Alert, ...]:
    return (*_memory_alerts(conn, run), *_option_alerts(conn, run), *_curve_alerts(run, curves))


def _memory_alerts(conn: Connection, run: Run) -> list[Alert]:
    if run.state == "out_of_memory":
        return [Alert("out of memory", run.id, run.reason or "out of memory after the last fallback")]
    if run.attempts < 2:
        return []
    of_run = attempts.of_run(conn, run.id)
    times = sum(attempt.outcome == "out_of_memory" for attempt in of_run)
    if not times:
        return []
    often = {1: "once", 2: "twice"}.get(times, f"{times} times")
    now = f"{run.state.replace('_', ' ')} in" if run.ended else "now in"
    return [Alert("out of memory", run.id, f"out of memory {often}, {now} attempt {run.attempts}")]


def _option_alerts(conn: Connection, run: Run) -> list[Alert]:
    """Alerts only for values a person requested: a profile may request values that a GPU does not support."""
    reported = reports.options(conn, run.id)
    newest = max((option.attempt for option in reported), default=0)
    unapplied = [option for option in reported if option.attempt == newest and is_unapplied(option)]
    if not unapplied:
        return []
    choices = runs.spec(conn, run.id).plan.get("choices") or []
    by = {choice["option"]: choice["chosen_by"] for choice in choices}
    return [
        Alert(
            "option",
            run.id,
            f"{option.name}: requested {option.requested}, applied {option.applied}: {option.reason}",
        )
        for option in unapplied
        if by.get(option.name, option.chosen_by) == "person"
    ]


def _curve_alerts(run: Run, curves: list[Series]) -> list[Alert]:
    names = [one.name for one in curves if one.n and one.last_value is None]
    return (
        [Alert("diverged", run.id, f"diverged: {', '.join(names)} became NaN or infinite")] if names else []
    )


def _disk_alerts(home: Home) -> list[Alert]:
    disk = os.statvfs(home.path)
    free_mib = disk.f_bavail * disk.f_frsize // _MIB
    whole_mib = disk.f_blocks * disk.f_frsize // _MIB
    if free_mib > max(_NEARLY_FULL_MIB, _NEARLY_FULL_SHARE * whole_mib):
        return []
    # Rounded, so that the text does not change every second while a disk fills up.
    step = free_mib // 256 * 256 + 256
    return [Alert("disk", None, f"less than {step:,} MiB free on the disk of {home.path}")]
