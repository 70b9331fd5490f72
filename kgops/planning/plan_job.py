"""Plans a resolved job: predicts memory, time and disk use, corrected by this machine's past runs."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from kgops.errors import Unavailable, WontFit
from kgops.gpus.facts import GpuFacts, driver_here
from kgops.jobs.job import Job
from kgops.jobs.on_device import WorkerDevice, cpu_processes, skips_compile
from kgops.jobs.run_options import gpus_for_devices
from kgops.jobs.text import in_bytes, on_or_off
from kgops.planning import memory_estimate
from kgops.planning.disk_space import MARGIN as DISK_MARGIN
from kgops.planning.disk_space import DiskPlan, disk_plan
from kgops.planning.memory_estimate import MemoryEstimate, job_size_of
from kgops.planning.oom_fallbacks import smaller_work
from kgops.planning.planner import MARGIN, Candidate, MachineCorrections, Suggestion, need_mib, suggest
from kgops.planning.process_memory import (
    STARTS,
    ProcessModel,
    Seen,
    kind_of,
    learn_process,
    start_mib,
)
from kgops.planning.resolve import Choice, Resolved, device_of, named_gpus, requested_gpu
from kgops.planning.speed import time_kind, trains_again
from kgops.planning.targets import Target, cpu_target, gpus_here, target_of_job
from kgops.settings import Home, make_home
from kgops.workloads.catalog import OPTIONS
from kgops.workloads.graphs.counts import counts_of
from kgops.workloads.number_formats import device_for
from kgops.workloads.plan import Count, plan_of
from kgops.workloads.registry import WORKLOADS, devices_of, timed_by_epoch, workload_of
from storage import predictions
from storage.database import Connection

_MIB = 1 << 20
MAX_TRIPLE_BYTES = 40 << 20  # of triples, counted before a start: some seven seconds, once


@dataclass(frozen=True, slots=True)
class Planned:
    """A job with its plan. `job` has the requested options, `choices` the applied ones. `unknown`: why nothing can be
    predicted."""

    job: Job
    choices: tuple[Choice, ...]
    target: Target
    suggestion: Suggestion | None = None
    unknown: str | None = None
    process: dict[str, Any] | None = None  # on the CPU: process memory model, to be recorded
    disk: DiskPlan | None = None  # None: unknown
    environment: Mapping[str, str] = field(default_factory=dict)  # from the profile, for the worker
    uuids: tuple[str, ...] = ()  # GPUs of this machine that the plan is for
    resolved: Job | None = None  # before the planner's changes
    profile_from_gpu: bool = False  # the GPU chose the profile: the job names none

    @property
    def best(self) -> Candidate | None:
        return self.suggestion.best if self.suggestion else None

    @property
    def predicted_mib(self) -> float | None:
        return self.best.estimate.total_mib if self.best else None

    @property
    def predicted_for(self) -> str | None:
        """The part of the run that the prediction covers, if not all."""
        if devices_of(self.job) == 1:
            return None
        return "of one process; each process holds all weights and does its share of the work"

    @property
    def entities(self) -> int | None:
        return self.suggestion.job_size.counts.entities if self.suggestion else None

    @property
    def gpu_request(self) -> str | None:
        """GPUs to request from the queue; None if the run uses none."""
        asked = named_gpus(self.job)
        if self._uses_gpu:
            return gpus_for_devices(asked, devices_of(self.job))
        return asked or ("auto" if self.job.gpu.memory_mib else None)

    @property
    def reserved_mib(self) -> int | None:
        """MiB on each GPU; None: unknown or more than the GPU has, so the run gets its GPUs exclusively."""
        if self.job.gpu.memory_mib is not None or self.gpu_request is None:
            return self.job.gpu.memory_mib
        if self.best is None:
            return None
        need, usable = need_mib(self.best.estimate), self.target.usable_mib
        # Only --force accepts more than the GPU has, and the queue could never give that.
        return None if usable is not None and need > usable else math.ceil(need)

    def forecast(self) -> dict[str, Any] | None:
        """Uncorrected prediction, to be recorded."""
        if self.best is None:
            return None
        estimate = self.best.estimate
        plain = estimate if estimate.correction is None else replace(estimate, correction=None)
        return {
            "on": _name(self.target),
            "on_gpu": self.target.on_gpu,
            "predicted_mib": plain.total_mib,
            "modelled_s": None if self.suggestion and self.suggestion.is_filtered else self.best.seconds,
            "time_kind": time_kind(self.job),
            "usable_mib": self.target.usable_mib,
            "gpu_budget_mib": self._gpu_budget_mib(estimate),
            "estimate": estimate.as_table(),
        }

    def _gpu_budget_mib(self, estimate: MemoryEstimate) -> int | None:
        """What torch may hold of the reservation, CUDA's context aside, but never less than was predicted; None where
        the worker keeps to none."""
        if not (self._uses_gpu and self.reserved_mib and workload_of(self.job).keeps_budget):
            return None
        predicted = (1 + MARGIN) * estimate.reserved
        return math.ceil(max(predicted, self.reserved_mib * _MIB - estimate.context) / _MIB)

    @property
    def _uses_gpu(self) -> bool:
        return WORKLOADS[self.job.workload].module is not None and self.target.on_gpu


def plan(
    resolved: Resolved,
    home: Home,
    conn: Connection | None,
    target: Target | None = None,
    *,
    thorough: bool = False,
) -> Planned:
    """Plans for `target`, by default this machine's device. `thorough`: see `planner.suggest`."""
    most = None if thorough else MAX_TRIPLE_BYTES
    count = partial(counts_of, remembered=remembered_in(home, "counts.json"), most_bytes=most)
    planned = _plan(resolved, home, conn, target, count, thorough=thorough)
    gpus = len(gpus_here()) if devices_of(planned.job) == "all" else None
    applied = as_applied(planned.job, planned.choices, planned.target.facts, gpus=gpus)
    disk = disk_plan(planned.job, planned.suggestion, home.runs, count)
    return replace(
        planned, choices=applied, disk=disk, environment=resolved.environment, resolved=resolved.job
    )


def _plan(
    resolved: Resolved,
    home: Home,
    conn: Connection | None,
    target: Target | None,
    count: Count,
    *,
    thorough: bool,
) -> Planned:
    job = resolved.job
    if WORKLOADS[job.workload].module is None:
        return Planned(
            job, resolved.choices, cpu_target(), unknown="kgops has no memory model for your own commands"
        )
    if job.on.where == "slurm" and target is None:
        reason = "the node is unknown until Slurm starts the job"
        return Planned(job, resolved.choices, cpu_target(), unknown=reason)
    on = target or target_of_job(requested_gpu(job), device_of(job))
    on = on if on.on_gpu else replace(on, limit_mib=job.limits.memory_mib)
    subject = job_size_of(job, count)
    if isinstance(subject, str):
        return Planned(job, resolved.choices, on, unknown=subject)
    known = known_of(home, conn, on, job)
    suggestion = suggest(subject, on, known, resolved.environment, thorough=thorough)
    if suggestion is None:
        return Planned(job, resolved.choices, on, unknown="kgops has no memory model for this job")
    changes, process = suggestion.best.changes, suggestion.best.estimate.process
    return Planned(
        replace(job, options={**job.options, **changes}),
        (*_unchanged_choices(resolved.choices, changes), *_planner_choices(resolved.choices, suggestion)),
        on,
        suggestion,
        process=_process_table(known, on, 0 if process is None else process.data),
    )


def _process_table(known: MachineCorrections, on: Target, data: int) -> dict[str, Any] | None:
    if known.process is None:
        return None
    return {"on": _name(on), **known.process.as_table(), "data_mib": data / _MIB}


def remembered_in(home: Home, name: str) -> Path | None:
    """Cache file in the home, which is set up if needed; None if the folder is missing or cannot be a home."""
    if not home.path.is_dir():
        return None
    try:
        make_home(home)
    except Unavailable:
        return None
    return home.path / name


def known_of(home: Home, conn: Connection | None, target: Target, job: Job) -> MachineCorrections:
    """Corrections learned from past runs on this GPU, or on this machine's CPU."""
    forecasts = (
        predictions.newest(conn, by_epoch=timed_by_epoch(), on=_name(target)) if conn is not None else []
    )
    known = MachineCorrections(
        time=_learned_time(job.workload, time_kind(job), forecasts),
        training=_learned_time("train", kind_of("train"), forecasts),
    )
    if target.on_gpu:
        driver = driver_here()
        contexts = [one.context_mib for one in forecasts if one.driver == driver and one.context_mib]
        known = replace(known, context_mib=contexts[0] if driver and contexts else None)
        pairs = ((forecast.predicted_mib, forecast.measured_mib) for forecast in forecasts)
        return replace(
            known, correction=memory_estimate.learn(memory_estimate.Pair(p, m) for p, m in pairs if p and m)
        )
    return replace(known, process=_learned_process(job, home, forecasts))


def _learned_time(
    workload: str, kind: str, forecasts: list[predictions.Forecast]
) -> memory_estimate.TimeCorrection | None:
    """From runs that computed the same kind of thing: what one process takes says nothing of two."""
    return memory_estimate.learn_time(
        memory_estimate.Measured(one.modelled_s, one.measured_s)
        for one in forecasts
        if one.workload == workload and one.time_kind == kind and one.modelled_s and one.measured_s
    )


def _learned_process(job: Job, home: Home, forecasts: list[predictions.Forecast]) -> ProcessModel:
    asks_to_compile = job.options.get("compile", "off") != "off" and not skips_compile(job, WorkerDevice())
    kind = kind_of(
        job.workload,
        shared_out=devices_of(job) != 1,
        trains_again=trains_again(job),
        ranks_heads=job.settings.get("inverse") is False,
        compiled=asks_to_compile,
        parquet=bool(job.settings.get("parquet")),
    )
    start = start_mib(job, remembered_in(home, STARTS))
    return learn_process(kind, filter(None, map(process_sample, forecasts)), start)


def process_sample(forecast: predictions.Forecast) -> Seen | None:
    """Measured process memory of a past run on the CPU."""
    process = forecast.process
    if (
        process is None
        or forecast.counted_mib is None
        or forecast.libraries_mib is None
        or forecast.peak_mib is None
    ):
        return None
    return Seen(
        process["kind"], forecast.counted_mib, process["data_mib"], forecast.libraries_mib, forecast.peak_mib
    )


def refuse_what_cannot_fit(planned: Planned) -> None:
    """Raises WontFit with the predicted need, the room and the nearest change that would fit."""
    suggestion = planned.suggestion
    if suggestion is None or suggestion.fits:
        if planned.disk is not None and not planned.disk.fits:
            raise _disk_too_small(planned.job, planned.disk)
        return
    need_mib = suggestion.requested.need_mib
    room_mib = planned.target.room_mib or 0
    nearest = suggestion.nearest
    room = "a GPU or machine with more memory"
    if planned.target.is_limited:
        room = f"a --memory-limit of {math.ceil(need_mib)}"
    hint = f"no setting of the options would fit; use {', or '.join([*smaller_work(planned.job), room])}"
    if nearest is not None:
        hint = (
            f"{describe_changes(nearest.changes)} would need {nearest.need_mib:,.0f} MiB ({nearest.effect})"
        )
    has = "of which --memory-limit allows" if planned.target.is_limited else "which has"
    raise WontFit(
        f"{planned.job.label} needs about {need_mib:,.0f} MiB on {planned.target.title}, {has} {room_mib:,.0f} MiB",
        f"{hint}. --force runs it anyway; `kgops suggest` shows more",
    )


def _disk_too_small(job: Job, disk: DiskPlan) -> WontFit:
    full_disk = next(full_disk for full_disk in disk.certain if not full_disk.fits)
    most = "at most " if disk.use.at_most else ""
    hint = "free some disk space, or set KGOPS_HOME or the output folder to another disk"
    if disk.nearest is not None:
        change, size = disk.nearest
        hint = f"{change} would write {in_bytes(size)}"
    return WontFit(
        f"{job.label} would write {most}{in_bytes(disk.use.total)} and needs {in_bytes(full_disk.need)} (with a margin "
        f"of {DISK_MARGIN:.0%}) on the disk of {full_disk.path}, which has {in_bytes(full_disk.free or 0)} free",
        f"{hint}. --force runs it anyway; `kgops suggest` shows more",
    )


def describe_changes(changes: Mapping[str, Any]) -> str:
    """`batch_size 512, gradient_checkpointing on`."""
    return ", ".join(f"{name} {on_or_off(value)}" for name, value in changes.items())


def _name(target: Target) -> str:
    return target.title if target.on_gpu else f"the CPU of {platform.node()}"


def _unchanged_choices(choices: tuple[Choice, ...], changes: Mapping[str, Any]) -> list[Choice]:
    return [choice for choice in choices if choice.option not in changes]


def _planner_choices(choices: tuple[Choice, ...], suggestion: Suggestion) -> list[Choice]:
    """The planner's changes, made to save memory."""
    requested = {choice.option: choice.requested for choice in choices}
    reason = f"without it {suggestion.requested.need_mib:,.0f} MiB are needed, of {suggestion.target.room_mib:,.0f}"
    return [
        Choice(name, requested.get(name, "auto"), value, "planner", reason)
        for name, value in suggestion.best.changes.items()
    ]


BY_DEFAULT = "default"


def as_applied(
    job: Job, choices: Iterable[Choice], gpu: GpuFacts | None, *, gpus: int | None
) -> tuple[Choice, ...]:
    """A plan's choices for this GPU (None: the CPU) with the values that the worker will report, defaults included.
    `gpus`: number of GPUs of `devices = "all"`; None: unknown."""
    chosen = {choice.option: choice for choice in choices}
    device = device_for(gpu)
    if workload_of(job).is_command or job.on.where == "slurm" or device is None:
        return tuple(chosen.values())
    for applied in plan_of(job.workload).applied(job, device, _processes(job, device, gpus)):
        choice = chosen.get(applied.option) or Choice(applied.option, None, None, BY_DEFAULT)
        reasons = dict.fromkeys(filter(None, (choice.reason, applied.reason)))
        value = _job_value(applied.option, applied.value)
        chosen[applied.option] = replace(choice, applied=value, reason="; ".join(reasons) or None)
    return tuple(chosen.values())


def _job_value(option: str, value: Any) -> Any:
    """The value as a job file spells it: on and off are true and false for boolean options."""
    switched = {"on": True, "off": False}.get(value) if isinstance(value, str) else None
    return switched if any(switched is one for one in OPTIONS[option].choices if one is not None) else value


def _processes(job: Job, device: WorkerDevice, gpus: int | None) -> tuple[int | None, str | None]:
    devices = devices_of(job)
    if device.kind == "cpu":
        return cpu_processes(devices)
    if devices == "all":
        return gpus, None
    return (devices if isinstance(devices, int) else devices.count(",") + 1), None
