"""Sizes of an explain run that its memory and time depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.workloads.explain.options import EXPLAIN_RIVALS
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.tracin.sizes import TracinShape, fisher_shape, retrained_shape
from kgops.workloads.train.job import ConvEConfig
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
    model: ConvEConfig,
    *,
    trained: Mapping[str, Any],
    predictions: int,
) -> ExplainShape:
    traced = fisher_shape(model, counts, gpu, tests=1 + EXPLAIN_RIVALS)
    verifies = job.settings["verify"] or job.settings["smallest"]
    return ExplainShape(
        traced, predictions, retrained_shape(counts, gpu, model, trained) if verifies else None
    )
