"""Resolves a job's options: requested values, who chose them, and the values after profile and rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kgops.errors import Usage
from kgops.gpus.facts import GpuFacts, facts_here
from kgops.jobs.job import Job
from kgops.jobs.option import word_of
from kgops.planning import profiles, rules
from kgops.planning.rules import Correction, Work
from kgops.workloads.registry import workload_of

FindGpu = Callable[[str | None], GpuFacts | None]

_ALLOCATOR = "PYTORCH_ALLOC_CONF"
_ALLOCATOR_BEFORE = "PYTORCH_CUDA_ALLOC_CONF"  # its name until torch 2.9; still heard
_SEGMENTS = "expandable_segments"
# PyKEEN's ranking leaves glibc's heap in pieces by chance: the same job peaked at 525 or at 2,900 MiB. Blocks above
# 8 MiB get separate pages, and huge pages make up for the cost. Other C libraries ignore it.
_PYKEEN_HEAP = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=8388608:glibc.malloc.hugetlb=1"}
# oneDNN keeps the kernels of 1,024 shapes, torch as many again: a pipeline kept 300 MiB of them. Blocks of training
# triples have some hundred shapes, since their queries are rounded (`rounded_rows`).
TRACIN_KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128", "LRU_CACHE_CAPACITY": "128"}
# Where no other run has the CPUs, threads that wait spin for a moment before they sleep. Waking them took almost half
# of a step's time on a virtual machine. GNU's OpenMP reads it, which torch's builds for Linux use.
_SPINNING = {"GOMP_SPINCOUNT": "10000"}
# Variables of kgops that another one of the person's decides, too.
_SYNONYMS = {_ALLOCATOR: _ALLOCATOR_BEFORE, "GOMP_SPINCOUNT": "OMP_WAIT_POLICY"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One resolved option: requested and applied value, who chose it, and why they differ."""

    option: str
    requested: Any
    applied: Any
    chosen_by: str
    reason: str | None = None
    source: str | None = None

    @property
    def is_corrected(self) -> bool:
        """Whether a rule changed it; a worker reports what it could not apply itself."""
        return self.source is not None

    def as_table(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        applied = "known only to the worker" if self.applied is None else word_of(self.applied)
        became = applied if self.requested is None else f"{word_of(self.requested)} → {applied}"
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
    """The GPU that a job gets: a requested one, or any that the installed torch can use."""
    facts = facts_here(gpu_request)
    return None if gpu_request is None and facts is not None and facts.cuda_problem is not None else facts


def resolve(job: Job, find_gpu: FindGpu = usable_here) -> Resolved:
    """The job as it will run. Raises Usage where torch cannot use the requested GPU."""
    job = on_the_cpu(job) if device_of(job) == "cpu" else job  # both stages of a pipeline
    given, gpu = job.options, _gpu_of(job, find_gpu)
    job = replace(job, profile=job.profile or profiles.default_for(job, gpu))
    filled = profiles.apply(job)
    profile = profiles.find(job.profile) if job.profile is not None else None
    has_cpus = (
        gpu is None and job.gpu.exclusive and job.on.where != "slurm" and not workload_of(job).is_command
    )
    own = {**_memory_of(filled), **(_SPINNING if has_cpus else {})}
    environment = {**own, **(profile.environment if profile else {})}
    chosen_by = {name: "person" if name in given else f"profile {job.profile}" for name in filled.options}
    if workload_of(job).is_command:
        return Resolved(filled, environment, tuple(_unchanged_options(filled, chosen_by)))
    requested = {**filled.options, **_related_settings(filled, environment)}
    settled, corrections = rules.apply(requested, gpu, work_of(filled))
    choices = tuple(_choices(requested, settled, corrections, chosen_by, f"profile {job.profile}", gpu))
    options = {name: settled[name] for name in filled.options}
    settings = _with_device(filled, corrections)
    return Resolved(
        replace(filled, options=options, settings=settings),
        _without_segments(environment) if settled.get(_SEGMENTS) is False else environment,
        choices,
    )


def conflicts(profile: profiles.Profile, gpu: GpuFacts | None) -> list[Correction]:
    """Corrections that rules would make to a profile on this GPU."""
    requested = {**profile.options, _SEGMENTS: expands_segments(profile.environment)}
    return rules.apply(requested, gpu, Work("train", trains=True))[1]


def work_of(job: Job) -> Work:
    """Properties of this job for rules. TracIn loads another model, at other addresses, for each checkpoint."""
    does = workload_of(job)
    return Work(job.workload, trains=not does.reads_model, moves_parameters="influences" in does.leaves)


def expands_segments(environment: Mapping[str, str]) -> bool:
    return "expandable_segments:true" in environment.get(_ALLOCATOR, "").lower()


def _gpu_of(job: Job, find_gpu: FindGpu) -> GpuFacts | None:
    """The GPU of the worker; None for the CPU, and for Slurm, whose node is unknown."""
    is_here = not workload_of(job).is_command and job.on.where != "slurm" and device_of(job) != "cpu"
    return find_gpu(requested_gpu(job)) if is_here else None


def requested_gpu(job: Job) -> str | None:
    """The GPU that the job requires; a memory reservation requires any GPU."""
    return named_gpus(job) or ("auto" if job.gpu.memory_mib is not None else None)


def named_gpus(job: Job) -> str | None:
    """The GPU that the job names, by `--gpu` or by the number in its `device`."""
    return numbered_gpu(job) or job.gpu.wanted


def numbered_gpu(job: Job) -> str | None:
    """The N of `device = "cuda:N"`, which means GPU N of this machine. On Slurm it is one of the node's."""
    number = device_of(job).partition(":")[2]
    return str(int(number)) if number and job.on.where != "slurm" else None


def requires_gpu(job: Job) -> bool:
    """Whether the job is refused where it cannot have a GPU."""
    return requested_gpu(job) is not None or device_of(job).startswith("cuda")


def device_of(job: Job) -> str:
    """The `device` that the job names. Both stages of a pipeline run on one device."""
    wanted = [stage.get("device", "auto") for stage in _stages(job)]
    return next((device for device in wanted if device != "auto"), "auto")


def on_the_cpu(job: Job) -> Job:
    """The job as `--device cpu` would have it."""
    stages = workload_of(job).stage_settings(job.settings)
    on_cpu = {name: {**stage, "device": "cpu"} for name, stage in stages.items()}
    return replace(job, settings={**job.settings, **on_cpu.get(job.workload, on_cpu)})


def _related_settings(job: Job, environment: Mapping[str, str]) -> dict[str, Any]:
    """Settings that rules read together with options."""
    values: dict[str, Any] = {"device": device_of(job)}
    if expands_segments(environment):
        values[_SEGMENTS] = True
    return values


def _choices(
    requested_values: Mapping[str, Any],
    settled: Mapping[str, Any],
    corrections: list[Correction],
    chosen_by: Mapping[str, str],
    profile: str,
    gpu: GpuFacts | None,
) -> Iterator[Choice]:
    """Choices of all options, and of related settings that a profile set or a rule changed."""
    last = {correction.option: correction for correction in corrections}
    for name, requested in requested_values.items():
        correction = last.get(name)
        if correction is not None:
            chooser = chosen_by.get(name, profile if name == _SEGMENTS else "person")
            yield Choice(name, requested, settled[name], chooser, correction.reason, correction.source)
        elif name in chosen_by:
            yield Choice(name, requested, settled[name], chosen_by[name])
        elif name == _SEGMENTS:
            # Workers do not report environment variables, so this is decided here.
            yield Choice(name, requested, gpu is not None, profile, None if gpu else "no CUDA device")


def _unchanged_options(job: Job, chosen_by: Mapping[str, str]) -> list[Choice]:
    reason = "kgops does not change a command's options; it sets the profile's environment"
    return [Choice(name, value, "off", chosen_by[name], reason) for name, value in job.options.items()]


def _with_device(job: Job, corrections: list[Correction]) -> dict[str, Any]:
    correction = next((c for c in corrections if c.option == "device"), None)
    if correction is None:
        return job.settings
    named = any(stage.get("device", "auto") != "auto" for stage in _stages(job))
    if named or job.gpu.wanted or job.gpu.memory_mib:
        raise Usage(
            f"the requested GPU cannot be used: {correction.reason} ({correction.source})",
            "install that build of torch, or run without --gpu and --device",
        )
    return on_the_cpu(job).settings


def _stages(job: Job) -> list[Mapping[str, Any]]:
    """The tables that may name a device."""
    return list(workload_of(job).stage_settings(job.settings).values())


def _memory_of(job: Job) -> dict[str, str]:
    """Variables that limit what libraries keep."""
    by_pykeen = any(stage.get("engine") == "pykeen" for stage in _stages(job))
    traces = "influences" in workload_of(job).leaves
    return {**(_PYKEEN_HEAP if by_pykeen else {}), **(TRACIN_KERNELS if traces else {})}


def _without_segments(environment: Mapping[str, str]) -> dict[str, str]:
    parts = [part for part in environment[_ALLOCATOR].split(",") if not part.strip().startswith(_SEGMENTS)]
    rest = {name: value for name, value in environment.items() if name != _ALLOCATOR}
    return {**rest, _ALLOCATOR: ",".join(parts)} if parts else rest


def for_worker(environment: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Variables to set for the worker, without those that the person has decided, under either name."""
    return {
        name: value
        for name, value in environment.items()
        if name not in given and _SYNONYMS.get(name, name) not in given
    }
