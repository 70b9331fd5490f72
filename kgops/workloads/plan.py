"""What planning asks of a workload: the stages of a job, their sizes, memory, time, disk use, and OOM fallbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Protocol, Self, cast, runtime_checkable

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice, skips_compile
from kgops.jobs.option import Effect
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.memory.phases import PeakMemory

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
    """Of a stage that may retrain what it reads; None where that training's settings are not known."""

    @property
    def retrained(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a job, as a job of that workload. `shape`: with these counts or others; None: no formula."""

    job: Job
    counts: Counts
    shape: Callable[[Options, GpuFacts | None, Counts], Shape | None]


class WorkloadPlan(Protocol):
    """A module `kgops.workloads.NAME.plan`; a function that takes a shape takes the shapes of its stages."""

    EXACT: Mapping[
        str, Sequence[Any]
    ]  # values to try of options that change no result, where a person gave none

    def stages(self, job: Job, count: Count, /) -> list[Stage] | str:
        """Or why the size of the job is unknown before it starts."""

    def peak_memory(self, shape: Any, gpu: GpuFacts | None, /, *, expandable: bool) -> PeakMemory: ...
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


def nothing(*_: Any, **__: Any) -> Iterator[Any]:
    """A plan's answer where there are no number formats to choose, or nothing that could be smaller."""
    return iter(())


def plan_of(workload: str) -> WorkloadPlan:
    return cast("WorkloadPlan", import_module(f"kgops.workloads.{workload}.plan"))


def with_options(job: Job, options: Options) -> Job:
    return replace(job, options=dict(options))


def unknown_data(settings: Mapping[str, Any]) -> str:
    if settings.get("dataset"):
        return f"the size of {settings['dataset']} is unknown until it is downloaded"
    return "its triples were not counted: too many (`kgops suggest` counts them once), or not readable"


RECORD = 25 << 10  # plan, environment, slots, log and the first events of a run
CHECKPOINT = 8 << 10  # of a file without its tensors: names, places, settings
RESUME_CHECKPOINT = 24 << 10  # of a checkpoint to resume from: moments and random states


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes in the run's folder by `parts`, when it has most, and `outside` it by the path that a person named.

    `passing` bytes are temporary, such as a checkpoint that replaces another. `at_most`: the total is an upper bound.
    `files` is their number, since each wastes part of a disk block.
    """

    parts: Mapping[str, int]
    outside: Mapping[str, int] = field(default_factory=dict)
    passing: int = 0
    files: int = 0
    at_most: bool = False

    @property
    def total(self) -> int:
        return sum(self.parts.values()) + sum(self.outside.values())

    def and_then(self, other: DiskUse) -> DiskUse:
        """Of a job that does both; its record is one."""
        parts = dict(self.parts)
        for name, size in other.parts.items():
            parts[name] = parts.get(name, RECORD if name == "record" else 0) + size
        parts["record"] -= RECORD
        return DiskUse(
            parts,
            {**self.outside, **other.outside},
            max(self.passing, other.passing),
            self.files + other.files,
            self.at_most or other.at_most,
        )


# Passes over the scores of a chunk: written by a product, turned into the gradient, read by two products.
SCORE_PASSES = 4
OPTIMIZER_PASSES = {"adam": 7, "adamw": 7, "adagrad": 5, "sgd": 3}  # over the parameters, read and written


@dataclass(frozen=True, slots=True)
class Rates:
    """Operations per second by number format, bytes per second, seconds per kernel launch."""

    flops: Mapping[str, float]
    bandwidth: float
    launch: float
    step: float = 0.0  # seconds of every step, whatever its size
    cache: int = 0
    overlaps: bool = True  # kernels are sent ahead while the GPU computes
    cores: int = 1  # that a run may use, of a CPU; the other rates are a core's

    def of(self, precision: str) -> float:
        return self.flops.get(precision, self.flops["fp32"])


@dataclass(frozen=True, slots=True)
class StepTime:
    """Modelled time of one optimizer step, and of a block of training triples for TracIn."""

    seconds: float
    launches: int
    limit: str  # what takes the longest: "launches", or of the GPU's work "operations" or "bytes"


def timed(operations: float, traffic: float, kernels: int, rates: Rates) -> StepTime:
    """`operations` and `traffic`: the seconds that only the arithmetic, or only the memory, would take."""
    launching = kernels * rates.launch
    busy = operations + traffic
    together = rates.step + (max(busy, launching) if rates.overlaps else busy + launching)
    limit = "launches" if launching > busy else "operations" if operations > traffic else "bytes"
    return StepTime(together, kernels, limit)


def spilled(scores: int, rates: Rates) -> int:
    """Scores that go through memory."""
    return 0 if 4 * scores <= rates.cache else scores


SMALLEST_CHUNK = 512  # smaller chunks of scores save no memory
_SMALLEST_BATCH = 16
GRAPH_MODES = ("reduce-overhead", "max-autotune")
Step = tuple[dict[str, Any], str]


@dataclass(frozen=True, slots=True)
class Fallbacks:
    """One stage of a job: its options at the `start`, and the fallback `steps` of one effect from the options `now`."""

    job: Job
    settings: Mapping[str, Any]  # of this stage
    gpu: GpuFacts | None

    @classmethod
    def of(cls, job: Job, settings: Mapping[str, Any], gpu: GpuFacts | None) -> Self:
        return cls(job, settings, None if settings.get("device") == "cpu" else gpu)

    def start(self, entities: int | None) -> dict[str, Any]:
        raise NotImplementedError

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        raise NotImplementedError

    @property
    def _skips_compile(self) -> bool:
        return self.gpu is None and skips_compile(self.job, WorkerDevice())

    def _precision(self) -> str:
        requested: str = self.job.options.get("precision", "fp32")
        return half(self.gpu) or requested if requested == "auto" else requested

    def _lower_precision(self, now: Mapping[str, Any]) -> Iterator[Step]:
        lower = half(self.gpu)
        if lower is not None and now["precision"] in ("fp32", "tf32"):
            yield {"precision": lower}, "half the bytes in matrix products"


def smaller_chunks(now: Mapping[str, Any]) -> Iterator[Step]:
    for chunk in sizes(now["entity_chunk"], SMALLEST_CHUNK):
        yield {"entity_chunk": chunk}, "fewer entities scored at once"


def sizes(start: int, smallest: int) -> Iterator[int]:
    """Powers of two from a quarter of `start` down. Each attempt loads libraries and graph again, so few large steps
    are faster than many small ones."""
    while start > smallest:
        start = max(smallest, 1 << ((start // 4).bit_length() - 1) if start >= 4 else 1)
        yield start


def smaller_batches(now: Mapping[str, Any]) -> Iterator[Step]:
    """Halves, one at a time: a step that changes results should change them little."""
    batch = now["batch_size"]
    while batch // 2 >= _SMALLEST_BATCH:
        batch //= 2
        yield {"batch_size": batch}, "fewer examples per step"


def chunk(requested: Mapping[str, Any], usual: int, entities: int | None) -> int:
    wanted = requested.get("entity_chunk", "auto")
    size: int = usual if wanted == "auto" else wanted
    return size if entities is None else min(size, entities)


def half(gpu: GpuFacts | None) -> str | None:
    """The half precision that this GPU has tensor cores for."""
    capability = None if gpu is None else gpu.compute_capability
    if capability is None or capability < (7, 0):
        return None
    return "bf16" if capability >= (8, 0) else "fp16"


def other_precisions(options: Mapping[str, Any], *, on_gpu: bool) -> Iterator[dict[str, Any]]:
    for precision in ("fp32", "tf32", "fp16", "bf16") if on_gpu else ("fp32", "bf16"):
        if precision != options.get("precision", "fp32"):
            yield {"precision": precision}
