"""What planning asks of an explain run: sizes, memory, time, applied options."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice
from kgops.workloads.explain.job import EXPLAIN_RIVALS, explain_options
from kgops.workloads.graphs.block_counts import Block
from kgops.workloads.graphs.counts import Counts, lines_of
from kgops.workloads.memory.budget import Moments, Parts, bounded, larger
from kgops.workloads.memory.phases import PeakMemory
from kgops.workloads.plan import Count, DiskUse, Fallbacks, Options, Rates, Stage, StepTime, nothing
from kgops.workloads.tracin import plan as tracin
from kgops.workloads.tracin.factor_memory import Side, scratch_parts
from kgops.workloads.tracin.memory import (
    block_made,
    engines,
    keep,
    known_triples,
    loaded,
    model_bytes,
    pairs,
    retraining,
)
from kgops.workloads.tracin.sizes import TracinShape, fisher_shape, retrained_shape
from kgops.workloads.train.models import ModelConfig
from kgops.workloads.train.plan import trained_model
from kgops.workloads.train.sizes import TrainShape


@dataclass(frozen=True, slots=True)
class ExplainShape:
    """`traced`: candidates past a prediction and its rivals, for each of `predictions`; then `retrained`, where the
    sets are verified by training again."""

    workload: ClassVar[str] = "explain"

    traced: TracinShape
    predictions: int
    retrained: TrainShape | None

    @property
    def on_gpu(self) -> bool:
        return self.traced.on_gpu


def explain_shape(
    job: Job,
    counts: Counts,
    gpu: GpuFacts | None,
    model: ModelConfig,
    *,
    trained: Mapping[str, Any],
    predictions: int,
) -> ExplainShape:
    traced = fisher_shape(model, counts, gpu, tests=1 + EXPLAIN_RIVALS)
    verifies = job.settings["verify"] or job.settings["smallest"]
    return ExplainShape(
        traced, predictions, retrained_shape(counts, gpu, model, trained) if verifies else None
    )


_ID = 8
_ROW = 3 * _ID


def moments(s: ExplainShape, gpu: GpuFacts | None) -> Moments:
    """Phases of `kgops.maths.explain.worker`, from the model to the trainings that verify its sets."""
    counts = s.traced.counts
    n = counts.train + counts.valid + counts.test
    run = Moments(Counter(data=0 if s.on_gpu else _ROW * n))
    run.add("loading", loaded(s.traced.model), Counter(checkpoint=model_bytes(s.traced.model)))
    run.held += loaded(s.traced.model)
    if not s.on_gpu:  # `KnownTriples` stays on the host
        known_triples(run, "explain", n, answers=True)
    for parts in influences(s.traced):
        run.add("explain", parts)
    if s.retrained is not None:
        retraining(s.retrained, s.predictions, run, gpu)
    return run


def influences(s: TracinShape) -> Iterator[Parts]:
    """`necessary.Influences`: the curvature once, then each prediction's candidates by blocks."""
    rows = s.rows_each * s.counts.train
    if not s.on_gpu:  # `Training.queries`
        yield Counter(data=(_ROW + 7 * _ID) * rows)
    made = engines(s)
    yield made + Counter(
        scores=8 * s.model.num_entities
    )  # of the question: its own, and of what is not known
    asked = Side(s.tests, s.tests, 1, s.tests)
    kept = keep(s, asked)
    yield made + kept.peak
    block = Block(0, s.block, s.block * s.rows_each, 0, 0)  # candidates of two entities seldom share a query
    side = Side.of_block(s, block, asked)
    of_block = block_made(s, side, asked)
    scratch = scratch_parts(kept.scratch, of_block.scratch)
    yield made + kept.held + scratch + larger(of_block.peak, of_block.held + pairs(s, side, asked))


EXACT: dict[str, tuple[Any, ...]] = {}


rounding_choices = smaller_results = nothing


def stages(job: Job, count: Count) -> list[Stage] | str:
    found = trained_model(job, count)
    if isinstance(found, str):
        return found
    model, trained, counts = found
    lines = lines_of(job.settings["triples"])
    predictions = min(lines, job.settings["max_triples"] or lines)

    def shape(options: Options, gpu: GpuFacts | None, counts: Counts) -> ExplainShape:
        return explain_shape(job, counts, gpu, model, trained=trained, predictions=predictions)

    return [Stage(job, counts, shape)]


def peak_memory(shape: ExplainShape, gpu: GpuFacts | None, *, expandable: bool) -> PeakMemory:
    return bounded(moments(shape, gpu), gpu, on_gpu=shape.on_gpu, expandable=expandable)


def applied(job: Job, device: WorkerDevice, processes: tuple[int | None, str | None]) -> Iterator[Applied]:
    del processes  # it has one
    return explain_options(job, device)


def fallbacks(job: Job, gpu: GpuFacts | None) -> list[Fallbacks]:
    return []


def disk_use(job: Job, counts: Counts, shape: ExplainShape | None, seconds: float) -> DiskUse | None:
    return None


_CANDIDATES = 8  # triples of a prediction's two entities, over triples an entity: those asked about have more


def steps(shape: ExplainShape) -> int:
    """Of candidates, and of the queries in which the curvature is seen. A prediction's entities are in many triples."""
    counts, block = shape.traced.counts, max(shape.traced.block, 1)
    candidates = _CANDIDATES * counts.train / max(counts.entities, 1)
    return shape.predictions * math.ceil(candidates / block) + math.ceil(shape.traced.fisher_queries / block)


def step_time(shape: ExplainShape, rates: Rates) -> StepTime:
    return tracin.step_time(shape.traced, rates)
