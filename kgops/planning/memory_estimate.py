"""Sizes of a job before it starts, and its predicted peak memory by part: torch-free, in a millisecond or a few.

*Counted tensors* are what torch's allocator hands out: tests/planning/test_estimate.py
measures how good their prediction is. *Process memory*, on a CPU, is all that the worker's process
has resident: those, and what `process_memory` learned of the rest. A GPU adds rounding, segments, workspaces and
context. These are derived from torch's source and from reports, and marked as not measured until a run on that GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.planning.process_memory import Process, ProcessModel
from kgops.workloads.graphs.counts import Counts, counts_of
from kgops.workloads.plan import Count, Shape, Stage, plan_of
from kgops.workloads.registry import workload_of

_LEAST = 3  # runs needed to learn a factor
_NEAREST = 9  # runs whose times count
_AS_NEAR = math.log(4)  # a run that much further in size than the nearest tells less than it
_FURTHEST = 3.0  # a larger factor is a wrong measurement, or another run on the GPU


class Pair(NamedTuple):
    """Uncorrected predicted memory and measured memory of a run."""

    predicted_mib: float
    measured_mib: float


@dataclass(frozen=True, slots=True)
class Correction:
    """`factor` makes nine of ten of `samples` runs fit; 1 where predictions were high enough."""

    factor: float
    samples: int

    @property
    def description(self) -> str:
        return f"learned from {self.samples} runs on this GPU (x {self.factor:.3f})"


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Relative errors of predictions over `samples` runs; negative: predicted too little."""

    samples: int
    median_error: float  # of the absolute errors
    worst_under: float  # 0 where none was under
    worst_over: float


def learn(pairs: Iterable[Pair]) -> Correction | None:
    """From the runs of one GPU; None where too few have been measured.

    Low predictions are raised at once, since they are dangerous. High ones are lowered as more runs agree: half of
    the way after three.
    """
    ratios = sorted(_ratios(pairs))
    if len(ratios) < _LEAST:
        return None
    high = ratios[min(len(ratios) - 1, math.ceil(0.9 * len(ratios)) - 1)]
    if high < 1:
        trust = 1 - _LEAST / (len(ratios) + _LEAST)
        high = 1 - (1 - high) * trust
    return Correction(high, len(ratios))


def accuracy(pairs: Iterable[Pair], *, furthest: float = _FURTHEST) -> Accuracy | None:
    """How good predictions have been; None without runs. A factor beyond `furthest` is no prediction's error."""
    errors = [1 / ratio - 1 for ratio in _ratios(pairs, furthest)]
    if not errors:
        return None
    return Accuracy(len(errors), median(map(abs, errors)), min(0.0, *errors), max(0.0, *errors))


def _ratios(pairs: Iterable[Pair], furthest: float = _FURTHEST) -> Iterable[float]:
    for predicted, measured in pairs:
        if predicted > 0 and measured > 0 and 1 / furthest <= measured / predicted <= furthest:
            yield measured / predicted


class Measured(NamedTuple):
    """Modelled and measured time of an epoch or a TracIn run."""

    modelled_s: float
    measured_s: float


class ExpectedTime(NamedTuple):
    """Median, lowest and highest expected seconds, from `runs` past runs."""

    s: float
    low_s: float
    high_s: float
    runs: int


@dataclass(frozen=True, slots=True)
class TimeCorrection:
    """Measured over modelled seconds of past runs of one kind."""

    runs: tuple[Measured, ...]

    def expected(self, modelled_s: float) -> ExpectedTime:
        """By the runs nearest in size: what every run takes once is a large part of a small one."""

        def apart(run: Measured) -> float:
            return abs(math.log(run.modelled_s / modelled_s)) if modelled_s > 0 else run.modelled_s

        nearest = sorted(self.runs, key=apart)[:_NEAREST]
        alike = [run for run in nearest if apart(run) <= apart(nearest[0]) + _AS_NEAR]
        ratios = [run.measured_s / run.modelled_s for run in alike]
        low, middle, high = (modelled_s * ratio for ratio in (min(ratios), median(ratios), max(ratios)))
        return ExpectedTime(middle, low, high, len(alike))


def learn_time(runs: Iterable[Measured]) -> TimeCorrection | None:
    """The correction from these runs; None without a measured run."""
    measured = tuple(run for run in runs if run.modelled_s > 0 and run.measured_s > 0)
    return TimeCorrection(measured) if measured else None


@dataclass(frozen=True, slots=True)
class JobSize:
    """Sizes of a job; a pipeline has several stages, another workload only itself."""

    job: Job
    counts: Counts
    stages: tuple[Stage, ...]

    @property
    def trains(self) -> bool:
        """Whether the job has optimizer steps."""
        return any(workload_of(stage.job).trains for stage in self.stages)

    @property
    def retrains(self) -> Job | None:
        """The stage that may retrain what it reads, to check what it found."""
        return next((stage.job for stage in self.stages if workload_of(stage.job).reads_model), None)

    def shapes(self, options: Mapping[str, Any], gpu: GpuFacts | None) -> list[Shape]:
        """Sizes of each stage with these options on this GPU (None: the CPU)."""
        shapes = (stage.shape(options, gpu, self.counts) for stage in self.stages)
        return [shape for shape in shapes if shape is not None]


def job_size_of(job: Job, count: Count = counts_of) -> JobSize | str:
    """The size of a job that is not a command, or why it is unknown before the job starts."""
    stages = plan_of(job.workload).stages(job, count)
    return stages if isinstance(stages, str) else JobSize(job, stages[0].counts, tuple(stages))


MIB = 1 << 20

_PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "the optimizer's moments",
    "data": "triples, frames and batches",
    "activations": "activations and buffers of a step",
    "loss": "the loss over entities",
    "evaluation": "ranking",
    "factors": "factors of gradients",
    "scores": "scores and the strongest of them",
    "score": "tensors that the score keeps of the training",
    "graph": "the graph that filtering searches, on the host",
    "checkpoint": "a checkpoint being read",
    "workspace": "copies and workspace of libraries",
}
# CUDA context, kernels and libraries: 256 to 400 MiB were reported. Each GPU and driver has its own, which the first
# run there tells.
_CONTEXT = 400 * MIB


class Row(NamedTuple):
    """One part of a memory estimate; `is_measured`: predictions of it were compared with measurements."""

    part: str
    size: int
    description: str
    is_measured: bool


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """All in bytes, at the peak, in `phase`; `phases` has the peak of each.

    `live`: memory that the allocator has handed out. `reserved`: memory that it holds for that. `total` on a GPU: all
    that the GPU has to have, corrected by what this machine's runs have shown. `total` on a CPU: all that the `process`
    has to have, or only the counted tensors if `process` is None.
    """

    parts: Mapping[str, int]
    phase: str
    phases: Mapping[str, int]
    live: int
    reserved: int
    context: int
    on_gpu: bool
    correction: Correction | None = None
    process: Process | None = None
    knows_context: bool = False  # measured here, not assumed

    @property
    def allocator(self) -> int:
        """Segments that are not full, and the holes in them."""
        return self.reserved - self.live

    @property
    def total(self) -> int:
        whole = self.reserved + self.context
        if self.process is not None:
            return whole + self.process.total
        return whole if self.correction is None else round(whole * self.correction.factor)

    @property
    def total_mib(self) -> float:
        return self.total / MIB

    def explain(self) -> list[Row]:
        """The parts, largest first, then what a GPU adds; they sum to `total`."""
        parts = sorted(self.parts.items(), key=lambda part: -part[1])
        rows = [Row(name, size, _PARTS[name], not self.on_gpu) for name, size in parts if size]
        if self.on_gpu:
            rows.append(Row("allocator", self.allocator, "segments of the cache that are not full", False))
            where = "measured on this GPU with this driver" if self.knows_context else "assumed"
            what = f"CUDA context, kernels and libraries: {where}"
            rows.append(Row("context", self.context, what, self.knows_context))
        if self.correction is not None:
            extra = self.total - self.reserved - self.context
            rows.append(Row("correction", extra, self.correction.description, True))
        if self.process is not None:
            process = self.process
            rows.append(Row("libraries", process.libraries, process.description, process.samples > 0))
            rows.append(
                Row("labels", process.data, "labels of the graph and Python's objects", process.samples > 0)
            )
            rows.append(
                Row("start", process.start, "Python and its imports, before any data", process.samples > 0)
            )
        return rows

    def as_table(self) -> dict[str, Any]:
        """In MiB, for a record or JSON."""
        start = {} if self.process is None else {"start_mib": self.process.start / MIB}
        return {
            **start,
            "phase": self.phase,
            "parts_mib": {row.part: row.size / MIB for row in self.explain()},
            "phases_mib": {phase: size / MIB for phase, size in self.phases.items()},
            "live_mib": self.live / MIB,
            "reserved_mib": self.reserved / MIB,
            "total_mib": self.total_mib,
        }


def predict(
    shape: Shape,
    gpu: GpuFacts | None = None,
    *,
    correction: Correction | None = None,
    process: ProcessModel | None = None,
    data: int = 0,
    expandable: bool = False,
    context: int | None = None,
) -> MemoryEstimate:
    """The peak of a job of this shape; `gpu` is the one the shape was made for. On a CPU `process` says what the
    worker's process takes apart from tensors, and `data` bytes of labels among it.

    `expandable`: segments may grow. `context`: bytes, where it was
    measured for this GPU and driver.
    """
    on_gpu = shape.on_gpu
    peak = plan_of(shape.workload).peak_memory(shape, gpu, expandable=expandable)
    return MemoryEstimate(
        *peak,
        (_CONTEXT if context is None else context) if on_gpu else 0,
        on_gpu,
        correction,
        process.above(peak.reserved, data) if process is not None and not on_gpu else None,
        knows_context=context is not None,
    )
