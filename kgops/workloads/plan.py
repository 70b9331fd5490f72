"""What planning asks of a workload: the stages of a job, their sizes, memory, time, disk use, and OOM fallbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol, cast, runtime_checkable

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice
from kgops.workloads.disk import DiskUse
from kgops.workloads.fallbacks import Fallbacks
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.memory.peak import PeakMemory
from kgops.workloads.times import Rates, StepTime

Options = Mapping[str, Any]
Count = Callable[[Mapping[str, Any]], Counts | None]
"""Counts the graph of these settings; None where it is not known before the start."""


class Shape(Protocol):
    """Sizes of a stage with given options on a given device."""

    @property
    def workload(self) -> str: ...
    @property
    def on_gpu(self) -> bool: ...


@runtime_checkable
class Training(Shape, Protocol):
    """Of a stage with optimizer steps: its batch, and the examples of an epoch."""

    @property
    def batch_size(self) -> int: ...
    @property
    def examples(self) -> int: ...


@runtime_checkable
class Filtering(Shape, Protocol):
    """Of a stage that may score only what filtering leaves."""

    @property
    def filtered(self) -> bool: ...


@runtime_checkable
class Retraining(Shape, Protocol):
    """Of a stage that may train again what it reads; None where that training's settings are not known."""

    @property
    def retrained(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a job, as a job of its own workload. `shape`: with these counts or others; None: no formula."""

    job: Job
    counts: Counts
    shape: Callable[[Options, GpuFacts | None, Counts], Shape | None]


class WorkloadPlan(Protocol):
    """A module `kgops.workloads.NAME.plan`; a function that takes a shape takes those of its own stages."""

    EXACT: Mapping[
        str, Sequence[Any]
    ]  # values to try of options that change no result, where a person gave none

    def stages(self, job: Job, count: Count, /) -> list[Stage] | str:
        """Or why the size of the job is unknown before it starts."""

    def peak_memory(
        self, shape: Any, gpu: GpuFacts | None, /, *, resumed: bool, expandable: bool
    ) -> PeakMemory: ...
    def step_time(self, shape: Any, rates: Rates, /) -> StepTime: ...
    def steps(self, shape: Any, /) -> int:
        """Of an epoch, or of the whole run where it has no epochs."""

    def rounding_choices(self, options: Options, *, on_gpu: bool) -> Iterator[dict[str, Any]]:
        """Number formats to show a person; never chosen."""

    def disk_use(self, job: Job, counts: Counts, shape: Any, seconds: float, /) -> DiskUse | None:
        """`shape` None: the model is unknown. `seconds`: the stage's expected time."""

    def smaller_results(self, job: Job, counts: Counts, /) -> Iterator[tuple[str, Any]]:
        """Settings that need less disk space; the smallest change first."""

    def fallbacks(self, job: Job, gpu: GpuFacts | None, /) -> list[Fallbacks]:
        """Of each stage that has some. No `gpu`: the job runs on the CPU."""

    def applied(
        self, job: Job, device: WorkerDevice, processes: tuple[int | None, str | None], /
    ) -> Iterator[Applied]:
        """Options as the worker will report them. `processes`: how many share the run, and why."""


def plan_of(workload: str) -> WorkloadPlan:
    return cast("WorkloadPlan", import_module(f"kgops.workloads.{workload}.plan"))


def with_options(job: Job, options: Options) -> Job:
    return replace(job, options=dict(options))


def unknown_data(settings: Mapping[str, Any]) -> str:
    if settings.get("dataset"):
        return f"the size of {settings['dataset']} is unknown until it is downloaded"
    return "its triples were not counted: too many (`kgops suggest` counts them once), or not readable"
