"""Plans a job for each kind of GPU on this machine, each with its own profile and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kgops.errors import KgopsError, Usage, WontFit
from kgops.gpus.facts import UnusableGpus
from kgops.jobs.job import Job
from kgops.jobs.run_options import WantedGpus, gpus_for_devices
from kgops.jobs.text import on_or_off
from kgops.planning.fit import Fit, fit_of
from kgops.planning.plan_job import Planned, plan
from kgops.planning.planner import Candidate, need_mib, suggest
from kgops.planning.resolve import device_of, named_gpus, requested_gpu, requires_gpu, resolve
from kgops.planning.start import must_be_possible
from kgops.planning.targets import Target, cpu_target, gpus_here, requested_gpus, weakest
from kgops.settings import Home
from kgops.supervisor import queue
from kgops.supervisor.gpu_room import GpuNow, read_gpus, room_on
from kgops.workloads.registry import devices_of, workload_of
from storage import runs
from storage.database import Connection
from storage.runs import Run


@dataclass(frozen=True, slots=True)
class Placement:
    """`planned`: plan for the GPU that the job would get now or wait for. `others`: plans for other kinds it may get.
    `fit`: whether it fits the GPUs now. `nearest_now`: the nearest change that would start at once."""

    planned: Planned
    fit: Fit
    nearest_now: Candidate | None = None
    others: tuple[Planned, ...] = ()
    mixed: bool = False  # whether this machine has GPUs of several kinds
    unused: UnusableGpus | None = None  # why the plan is for the CPU of a machine with GPUs

    @property
    def each(self) -> tuple[Planned, ...]:
        """Plans of all GPUs that the queue may give; empty if all are alike."""
        return (self.planned, *self.others) if self.mixed else ()

    @property
    def differences(self) -> list[str]:
        """How the plan differs on other GPUs, one line per kind."""
        return [line for other in self.others if (line := _difference(self.planned, other)) is not None]


def plan_here(
    job: Job,
    home: Home,
    conn: Connection | None,
    *,
    thorough: bool = False,
) -> Placement:
    """Plans for this machine as it is now. Raises Usage if the requested GPU cannot run the job at all."""
    kinds = _kinds(_candidates(job))
    if not kinds or _wants_several(job):
        gpus = [gpu for kind in kinds for gpu in kind]
        placement = _placement(
            [_planned(job, [weakest(gpus)] if gpus else [], home, conn, thorough)], home, conn
        )
        return placement if gpus else replace(placement, unused=_unused_gpus(job))
    plans, refused = [], None
    for gpus in kinds:
        try:
            plans.append(_planned(job, gpus, home, conn, thorough))
        except Usage as error:
            refused = error
    usable = [candidate for candidate in plans if candidate.target.on_gpu] or plans
    if not usable:
        assert refused is not None
        raise refused
    return _placement(
        [candidate for candidate in usable if _may_fit(candidate)] or usable, home, conn, mixed=len(kinds) > 1
    )


def plan_for(
    job: Job, target: Target, home: Home, conn: Connection | None, *, thorough: bool = False
) -> Placement:
    """Plans for `target`: a GPU of this machine, a known GPU model, or the CPU."""
    planned = _planned(job, [target], home, conn, thorough)
    if target.uuid is not None:
        return _placement([replace(planned, job=_on_gpu(planned.job, target))], home, conn)
    return Placement(planned, _fit(planned, queue.Allocation(queue.CPU, left_mib=None)))


def cannot_start(planned: Planned) -> KgopsError | None:
    """The error with which the job would be refused here, whatever it needs; --force does not help."""
    try:
        must_be_possible(planned.job, on_gpu=planned.target.on_gpu)
    except (Usage, WontFit) as error:
        return error
    return None


def as_refused(placed: Placement) -> Placement:
    """The plan of a job that may not be able to start here."""
    error = cannot_start(placed.planned) if placed.fit.fits else None
    if error is None:
        return placed
    return replace(placed, fit=Fit("never", f"would not start here: {error.message}"), nearest_now=None)


def _candidates(job: Job) -> list[Target]:
    takes_any = _uses_torch_here(job) and device_of(job) != "cpu"
    return requested_gpus(requested_gpu(job)) if takes_any else []


def _unused_gpus(job: Job) -> UnusableGpus | None:
    """This machine's GPUs, if the installed torch cannot use them. None if it can, if there are none, or if the job
    requires a GPU and is refused."""
    has_choice = _uses_torch_here(job) and device_of(job) != "cpu" and not requires_gpu(job)
    gpus = gpus_here() if has_choice else []
    problem = next((gpu.facts.cuda_problem for gpu in gpus if gpu.facts is not None), None)
    return None if problem is None else UnusableGpus(len(gpus), problem)


def _uses_torch_here(job: Job) -> bool:
    return not workload_of(job).is_command and job.on.where is None


def _kinds(gpus: Sequence[Target]) -> list[list[Target]]:
    """GPUs grouped by all that a plan depends on, in their order."""
    kinds: dict[Any, list[Target]] = {}
    for gpu in gpus:
        kinds.setdefault((gpu.title, gpu.facts, gpu.usable_mib), []).append(gpu)
    return list(kinds.values())


def _wants_several(job: Job) -> bool:
    """Whether the job wants several GPUs, which then share one plan."""
    text = gpus_for_devices(named_gpus(job), devices_of(job))
    request = WantedGpus.read(text)
    return request.count != 1 and (request.named is None or len(request.named) > 1)


def _planned(
    job: Job,
    gpus: Sequence[Target],
    home: Home,
    conn: Connection | None,
    thorough: bool,
) -> Planned:
    if (
        workload_of(job).is_command
        or job.on.where is not None
        or (not gpus and device_of(job).startswith("cuda"))
    ):
        return plan(resolve(job), home, conn, thorough=thorough)
    target = gpus[0] if gpus else cpu_target()
    resolved = resolve(job, lambda _: target.facts)
    planned = plan(resolved, home, conn, target, thorough=thorough)
    uuids = tuple(gpu.uuid for gpu in gpus if gpu.uuid)
    return replace(planned, uuids=uuids, profile_from_gpu=job.profile is None and target.on_gpu)


def _on_gpu(job: Job, target: Target) -> Job:
    return replace(job, gpu=replace(job.gpu, wanted=target.uuid))


def _may_fit(planned: Planned) -> bool:
    need, room = _need(planned), planned.target.usable_mib
    return need is None or room is None or max(need, planned.job.gpu.memory_mib or 0) <= room


def _need(planned: Planned) -> float | None:
    return need_mib(planned.best.estimate) if planned.best is not None else None


def _placement(
    plans: Sequence[Planned], home: Home, conn: Connection | None, *, mixed: bool = False
) -> Placement:
    """The plan for the GPU that the queue would assign now; if all are busy, for the one with most memory."""
    first = plans[0]
    if first.gpu_request is None:
        allocation = queue.allocation_now(conn, _as_run(first), ())
        return Placement(first, _fit(first, allocation))
    needs = {uuid: one.reserved_mib for one in plans for uuid in one.uuids} if mixed else None
    gpus = read_gpus(home, conn)
    allocation = queue.allocation_now(conn, _as_run(first), gpus, needs)
    largest = max(plans, key=lambda one: one.target.usable_mib or 0)
    chosen = next((one for one in plans if allocation.gpu in one.uuids), largest)
    active = runs.in_states(conn, runs.ACTIVE) if conn is not None else []
    given = _with_gpus(chosen, allocation, () if isinstance(gpus, str) else gpus, active)
    fit = _fit(given, allocation)
    others = tuple(one for one in plans if one is not chosen)
    nearest = _nearest_now(given, conn, gpus, needs) if fit.state == "later" else None
    return Placement(given, fit, nearest, others, mixed)


def _with_gpus(
    planned: Planned, allocation: queue.Allocation, gpus: Sequence[GpuNow], active: Sequence[Run]
) -> Planned:
    """Names the GPUs that the run would get, of several that are alike, with the memory left for it. Names none if
    it waits for one of several."""
    uuids = planned.uuids if allocation.gpu is None else allocation.gpu.split(",")
    there = [gpu for gpu in gpus if gpu.reading.uuid in uuids]
    readings = [gpu.reading for gpu in there]
    target = planned.target
    if target.facts is None or not readings or any(gpu.name != target.facts.name for gpu in readings):
        return planned
    rooms = (room_on(gpu, [run for run in active if gpu.reading.uuid in run.gpus]) for gpu in there)
    free = [max(room, 0) for room in rooms if room is not None]
    waits_for_any = allocation.gpu is None and len(readings) > 1
    target = replace(
        target,
        gpu_name=None if waits_for_any else ",".join(str(gpu.names[0]) for gpu in readings),
        uuid=readings[0].uuid if len(readings) == 1 else None,
        free_mib=None if not free else max(free) if waits_for_any else min(free),
    )
    suggestion = planned.suggestion
    return replace(planned, target=target, suggestion=suggestion and replace(suggestion, target=target))


def _fit(planned: Planned, allocation: queue.Allocation) -> Fit:
    target, reserved = planned.target, planned.job.gpu.memory_mib
    if target.on_gpu and reserved and target.usable_mib is not None and reserved > target.usable_mib:
        return Fit("never", f"does not fit: reserves {reserved:,} of {target.usable_mib:,.0f} MiB")
    return fit_of(
        _need(planned),
        on=target.title,
        room_mib=target.room_mib,
        of_limit=target.is_limited,
        on_gpu=target.on_gpu,
        spare_mib=allocation.left_mib if target.on_gpu else None,
        waits_for=allocation.waits_for,
    )


def _nearest_now(
    planned: Planned,
    conn: Connection | None,
    gpus: Any,
    needs: queue.Needs | None,
) -> Candidate | None:
    """The smallest change that would start at once; None if none would, or if memory is not the obstacle."""
    suggestion = planned.suggestion
    if suggestion is None:
        return None
    without_memory = _as_run(planned)._replace(reserved_mib=0)
    allocation = queue.allocation_now(conn, without_memory, gpus, dict.fromkeys(needs, 0) if needs else None)
    if allocation.gpu is None or allocation.left_mib is None:
        return None
    room = replace(suggestion.target, usable_mib=allocation.left_mib)
    suggested = suggest(
        suggestion.job_size, room, suggestion.corrections, planned.environment, thorough=False
    )
    if suggested is None:
        return None
    return (
        suggested.chosen if suggested.chosen is not None and suggested.chosen.changes else suggested.nearest
    )


def _as_run(planned: Planned) -> Run:
    """A run row for the queue; no run has its number 0."""
    gpu = planned.job.gpu
    return Run(
        state="queued",
        gpu_request=planned.gpu_request,
        reserved_mib=planned.reserved_mib,
        exclusive=int(gpu.exclusive),
    )


def _difference(chosen: Planned, other: Planned) -> str | None:
    differences = [f"profile {other.job.profile}"] if other.job.profile != chosen.job.profile else []
    own_options = {choice.option: choice.applied for choice in chosen.choices}
    other_options = {choice.option: choice.applied for choice in other.choices}
    differences += [
        f"{name} {on_or_off(value)}"
        for name, value in other_options.items()
        if own_options.get(name, value) != value
    ]
    need, room = _need(other), other.target.usable_mib
    if need is not None:
        of = f" of {room:,.0f}" if room is not None else ""
        differences.append(f"needs {need:,.0f}{of} MiB")
    return f"on {other.target.title}: {', '.join(differences)}" if differences else None
