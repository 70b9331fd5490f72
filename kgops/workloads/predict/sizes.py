"""Sizes of a predict run that its memory, time and disk use depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kgops.jobs.job import Job
from kgops.workloads.graphs.counts import Counts, lines_of
from kgops.workloads.predict.job import formats_of
from kgops.workloads.predict.options import PREDICT_CHUNK, PREDICT_ENCODED, PREDICT_SCORES, PREDICT_SPARE
from kgops.workloads.train.job import ConvEConfig


@dataclass(frozen=True, slots=True)
class PredictShape:
    """Questions to one ConvE, or with `pairs` all pairs of a relation. `kept` answers of each question are scored
    again, at most; `listed` are written."""

    workload: ClassVar[str] = "predict"

    model: ConvEConfig
    on_gpu: bool
    counts: Counts
    questions: int
    kept: int
    listed: int
    pairs: bool
    chunk: int
    parquet: bool = False

    @property
    def at_once(self) -> int:
        """Questions of a block."""
        fitting = PREDICT_SCORES // max(self.model.num_entities, 1)
        return max(1, min(PREDICT_ENCODED, fitting, self.questions))


def predict_shape(job: Job, counts: Counts, model: ConvEConfig, *, on_gpu: bool) -> PredictShape:
    settings = job.settings
    chunk = job.options.get("entity_chunk", "auto")
    entities = model.num_entities
    pairs = settings["best"] is not None
    listed: int = settings["best"] if pairs else min(settings["top_k"], entities)
    kept = listed + PREDICT_SPARE
    return PredictShape(
        model,
        on_gpu,
        counts,
        1 if pairs else lines_of(settings["queries"]),
        kept if pairs else min(kept, entities),
        listed,
        pairs,
        min(PREDICT_CHUNK if chunk == "auto" else chunk, entities),
        ".parquet" in formats_of(settings),
    )
