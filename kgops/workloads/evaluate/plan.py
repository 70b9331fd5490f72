"""What planning asks of an evaluation: sizes, memory, time, disk use, applied options."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice
from kgops.workloads.evaluate.job import evaluate_options
from kgops.workloads.graphs.counts import Counts, lines_of
from kgops.workloads.memory.phases import PeakMemory
from kgops.workloads.plan import (
    RECORD,
    SCORE_PASSES,
    Count,
    DiskUse,
    Fallbacks,
    Options,
    Rates,
    Stage,
    StepTime,
    nothing,
    timed,
)
from kgops.workloads.predict.job import PREDICT_ENCODED
from kgops.workloads.train.models import ModelConfig, buffer_bytes, kernel, weight_bytes
from kgops.workloads.train.options import EVALUATION_CHUNK, EVALUATION_ENCODED, EVALUATION_QUERIES
from kgops.workloads.train.plan import trained_model

EXACT: dict[str, tuple[Any, ...]] = {}
_KERNELS = 60  # of a block of queries, without those of its chunks of entities; counted as TracIn's are
_CHUNK_KERNELS = 11
_RESULTS = 64 << 10  # bytes of the results by direction and degree
_RELATION = 270  # bytes of the results of a relation


@dataclass(frozen=True, slots=True)
class EvaluateShape:
    workload: ClassVar[str] = "evaluate"

    model: ModelConfig
    counts: Counts
    triples: int  # ranked, each by its head and its tail
    on_gpu: bool
    matrix: bool = False

    @property
    def chunk(self) -> int:
        return min(EVALUATION_CHUNK["cuda" if self.on_gpu else "cpu"], self.model.num_entities)

    @property
    def queries(self) -> int:
        return min(EVALUATION_QUERIES, 2 * self.triples)


rounding_choices = smaller_results = nothing


def stages(job: Job, count: Count) -> list[Stage] | str:
    found = trained_model(job, count)
    if isinstance(found, str):
        return found
    model, _, of_graph = found
    given = job.settings["triples"]

    def shape(options: Options, gpu: GpuFacts | None, counts: Counts) -> EvaluateShape:
        triples = lines_of(given) if given else max(counts.test, 1)
        return EvaluateShape(model, counts, triples, gpu is not None, job.settings["matrix"] is not None)

    return [Stage(job, of_graph, shape)]


def peak_memory(shape: EvaluateShape, gpu: GpuFacts | None, *, expandable: bool) -> PeakMemory:
    """A bound for each part that `kgops.maths.train.evaluate` keeps of a block of queries."""
    model, counts = shape.model, shape.counts
    triples = counts.train + counts.valid + counts.test + shape.triples
    # Without inverse relations all entities are encoded, as heads of a relation.
    heads = 0 if model.inverse else model.num_entities
    encoded = min(EVALUATION_ENCODED, shape.queries + heads)
    maps = 2 * model.features + 4 * model.embedding_dim
    parts = {
        "weights": weight_bytes(model) + buffer_bytes(model),
        # int64 columns; known answers sorted by both directions, with keys and their order.
        "data": 3 * 8 * triples + 2 * 8 * 5 * triples,
        "activations": 4 * encoded * maps + 4 * (2 * shape.queries + 4 * heads) * model.embedding_dim,
        # Scores of a chunk, twice while they are compared, and which of them count.
        "evaluation": 12 * shape.queries * shape.chunk + 64 * triples // 4,
    }
    if (
        shape.matrix
    ):  # scores of a block of heads; on the CPU those of the tails too, in float64, with their places
        parts["evaluation"] += (4 if shape.on_gpu else 32) * PREDICT_ENCODED * model.num_entities
    live = sum(parts.values())
    return PeakMemory(parts, "ranking", {"ranking": live}, live, round(live * (1.1 if shape.on_gpu else 1.0)))


def step_time(shape: EvaluateShape, rates: Rates) -> StepTime:
    """Of a block of queries."""
    model = shape.model
    operations = 2 * shape.queries * model.features * (kernel(model) + model.embedding_dim)
    operations += 2 * shape.queries * model.num_entities * model.embedding_dim
    traffic = SCORE_PASSES * 4 * shape.queries * model.num_entities
    kernels = _KERNELS + _CHUNK_KERNELS * math.ceil(model.num_entities / shape.chunk)
    return timed(operations / rates.of("fp32"), traffic / rates.bandwidth, kernels, rates)


def steps(shape: EvaluateShape) -> int:
    """Blocks of queries."""
    return math.ceil(2 * shape.triples / shape.queries)


def disk_use(job: Job, counts: Counts, shape: EvaluateShape | None, seconds: float) -> DiskUse | None:
    if shape is None:
        return None
    results = _RESULTS + _RELATION * shape.model.num_relations
    copies = {job.settings["output_dir"]: results} if job.settings["output_dir"] else {}
    return DiskUse({"results": results, "record": RECORD}, copies, files=3)


def fallbacks(job: Job, gpu: GpuFacts | None) -> list[Fallbacks]:
    return []


def applied(job: Job, device: WorkerDevice, processes: tuple[int | None, str | None]) -> Iterator[Applied]:
    del processes  # it has one
    return evaluate_options(job, device)
