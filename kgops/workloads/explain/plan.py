"""What planning asks of an explain run: sizes, time, applied options."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice
from kgops.workloads.explain import memory
from kgops.workloads.explain.job import explain_options
from kgops.workloads.explain.sizes import ExplainShape, explain_shape
from kgops.workloads.graphs.counts import Counts, lines_of
from kgops.workloads.memory.peak import PeakMemory
from kgops.workloads.plan import Count, DiskUse, Fallbacks, Options, Rates, Stage, StepTime
from kgops.workloads.tracin import plan as tracin
from kgops.workloads.train.trained import trained_model

EXACT: dict[str, tuple[Any, ...]] = {}


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


def peak_memory(shape: ExplainShape, gpu: GpuFacts | None, *, resumed: bool, expandable: bool) -> PeakMemory:
    del resumed  # it starts again
    return memory.peak_memory(shape, gpu, expandable=expandable)


def rounding_choices(options: Options, *, on_gpu: bool) -> Iterator[dict[str, Any]]:
    yield from ()


def applied(job: Job, device: WorkerDevice, processes: tuple[int | None, str | None]) -> Iterator[Applied]:
    del processes  # it has one
    return explain_options(job, device)


def fallbacks(job: Job, gpu: GpuFacts | None) -> list[Fallbacks]:
    return []


def smaller_results(job: Job, counts: Counts) -> Iterator[tuple[str, Any]]:
    yield from ()


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
