"""A job's options as they will be pulled: what was asked for, by whom, and what rules made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kgops.errors import Usage
from kgops.gpus.facts import GpuFacts, facts_here, torch_build
from kgops.jobs.job import Job
from kgops.planning import profiles, rules
from kgops.planning.rules import Correction, Work, shown

__all__ = [
    "Choice",
    "FindGpu",
    "Resolved",
    "conflicts",
    "device_of",
    "expands_segments",
    "for_worker",
    "gpu_asked",
    "on_the_cpu",
    "resolve",
    "usable_here",
    "work_of",
]

FindGpu = Callable[[str | None], GpuFacts | None]

_ALLOCATOR = "PYTORCH_ALLOC_CONF"
_ALLOCATOR_BEFORE = "PYTORCH_CUDA_ALLOC_CONF"  # its name until torch 2.9; still heard
_SEGMENTS = "expandable_segments"
_STAGES = ("train", "tracin")  # of a pipeline
PATHS = ("path_filtering", "strict_path_filtering")


@dataclass(frozen=True, slots=True)
class Choice:
    """One option: who chose it, and what became of it before any worker saw it."""

    option: str
    requested: Any
    applied: Any
    chosen_by: str
    reason: str | None = None
    source: str | None = None

    @property
    def is_corrected(self) -> bool:
        """By a rule, that is: what a worker cannot honour it says itself."""
        return self.source is not None

    def as_table(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        applied = "known to the worker alone" if self.applied is None else shown(self.applied)
        became = applied if self.requested is None else f"{shown(self.requested)} → {applied}"
        why = "; ".join(filter(None, (self.reason, self.source)))
        return f"{self.option}: {became}" + (f" ({why})" if why else "")


@dataclass(frozen=True, slots=True)
class Resolved:
    job: Job
    environment: dict[str, str]  # for the worker, where the person has not set it
    choices: tuple[Choice, ...]

    @property
    def corrected(self) -> list[Choice]:
        return [choice for choice in self.choices if choice.is_corrected]


def usable_here(gpu_request: str | None) -> GpuFacts | None:
    """The GPU a job gets: one it insists on, or any where the torch that is installed can use it."""
    build = torch_build()
    return (
        None if gpu_request is None and build is not None and build.cuda is None else facts_here(gpu_request)
    )


def resolve(job: Job, find_gpu: FindGpu = usable_here) -> Resolved:
    """The job as it will be run. Raises Usage where a GPU is insisted on that cannot do the work at all."""
    asked_for, gpu = job.options, _gpu_of(job, find_gpu)
    job = replace(job, profile=job.profile or profiles.default_for(job, gpu))
    filled = profiles.apply(job)
    profile = profiles.find(job.profile) if job.profile is not None else None
    environment = dict(profile.environment) if profile else {}
    by = {name: "person" if name in asked_for else f"profile {job.profile}" for name in filled.options}
    if job.workload == "exec":
        return Resolved(filled, environment, tuple(_left_alone(filled, by)))
    asked = {**filled.options, **_neighbours(filled, environment)}
    settled, corrections = rules.apply(asked, gpu, work_of(filled))
    choices = tuple(_choices(asked, settled, corrections, by, f"profile {job.profile}", gpu))
    options = {name: settled[name] for name in filled.options}
    settings = _with_device(filled, corrections)
    return Resolved(
        replace(filled, options=options, settings=settings),
        _without_segments(environment) if settled.get(_SEGMENTS) is False else environment,
        choices,
    )


def conflicts(profile: profiles.Profile, gpu: GpuFacts | None) -> list[Correction]:
    """What rules would change of a profile on this GPU, whatever is trained."""
    asked = {**profile.options, _SEGMENTS: expands_segments(profile.environment)}
    return rules.apply(asked, gpu, Work("train", trains=True))[1]


def work_of(job: Job) -> Work:
    """What is peculiar to this job. TracIn has another model, at other addresses, for each checkpoint."""
    traces = job.workload in ("tracin", "pipeline")
    return Work(
        job.workload,
        trains=job.workload != "tracin",
        moves_parameters=traces,
        varies_shapes=traces and bool(job.settings.get("test_triples")),
        shares_steps=job.workload in ("train", "pipeline"),
    )


def expands_segments(environment: Mapping[str, str]) -> bool:
    return "expandable_segments:true" in environment.get(_ALLOCATOR, "").lower()


def _gpu_of(job: Job, find_gpu: FindGpu) -> GpuFacts | None:
    """That the worker will have; of a node that Slurm chooses nobody knows it yet."""
    is_here = job.workload != "exec" and job.on.where != "slurm" and device_of(job) != "cpu"
    return find_gpu(gpu_asked(job)) if is_here else None


def gpu_asked(job: Job) -> str | None:
    """What the job insists on; memory to reserve is some GPU's."""
    return job.gpu.wanted or ("auto" if job.gpu.memory_mib is not None else None)


def device_of(job: Job) -> str:
    """The `device` that the job names. A pipeline's stages share a GPU, and what keeps one off it keeps the other off
    too."""
    wanted = [stage.get("device", "auto") for stage in _stages(job)]
    return next((device for device in wanted if device != "auto"), "auto")


def on_the_cpu(job: Job) -> Job:
    """The job as `--device cpu` would have it."""
    if job.workload == "exec":
        return job
    if job.workload == "pipeline":
        stages = {name: {**(job.settings[name] or {}), "device": "cpu"} for name in _STAGES}
        return replace(job, settings={**job.settings, **stages})
    return replace(job, settings={**job.settings, "device": "cpu"})


def _neighbours(job: Job, environment: Mapping[str, str]) -> dict[str, Any]:
    """Settings that rules weigh together with options."""
    found = {name: job.settings[name] for name in PATHS if name in job.settings}
    found["device"] = device_of(job)
    if expands_segments(environment):
        found[_SEGMENTS] = True
    return found


def _choices(
    asked: Mapping[str, Any],
    settled: Mapping[str, Any],
    corrections: list[Correction],
    by: Mapping[str, str],
    profile: str,
    gpu: GpuFacts | None,
) -> Iterator[Choice]:
    """Every option, and of its neighbours those that a profile set or a rule changed."""
    last = {correction.option: correction for correction in corrections}
    for name, requested in asked.items():
        why = last.get(name)
        if why is not None:
            who = by.get(name, profile if name == _SEGMENTS else "person")
            yield Choice(name, requested, settled[name], who, why.reason, why.source)
        elif name in by:
            yield Choice(name, requested, settled[name], by[name])
        elif name == _SEGMENTS:
            # No worker reports what it finds in its environment, so it is said here.
            yield Choice(name, requested, gpu is not None, profile, None if gpu else "no CUDA device")


def _left_alone(job: Job, by: Mapping[str, str]) -> list[Choice]:
    reason = "a command of your own decides for itself; it gets the profile's environment"
    return [Choice(name, value, "off", by[name], reason) for name, value in job.options.items()]


def _with_device(job: Job, corrections: list[Correction]) -> dict[str, Any]:
    why = next((c for c in corrections if c.option == "device"), None)
    if why is None:
        return job.settings
    named = any(stage.get("device", "auto") != "auto" for stage in _stages(job))
    if named or job.gpu.wanted or job.gpu.memory_mib:
        raise Usage(
            f"the GPU that was asked for cannot be used: {why.reason} ({why.source})",
            "install that build of torch, or run without --gpu and --device",
        )
    return on_the_cpu(job).settings


def _stages(job: Job) -> list[Mapping[str, Any]]:
    """The tables that may name a device."""
    if job.workload == "pipeline":
        return [job.settings[name] or {} for name in _STAGES]
    return [job.settings]


def _without_segments(environment: Mapping[str, str]) -> dict[str, str]:
    parts = [part for part in environment[_ALLOCATOR].split(",") if not part.strip().startswith(_SEGMENTS)]
    rest = {name: value for name, value in environment.items() if name != _ALLOCATOR}
    return {**rest, _ALLOCATOR: ",".join(parts)} if parts else rest


def for_worker(environment: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What of a profile's environment to set: never over what the person has set, by whichever name."""
    return {
        name: value
        for name, value in environment.items()
        if name not in given and not (name == _ALLOCATOR and _ALLOCATOR_BEFORE in given)
    }
