"""The numbers that a training's memory depends on.

Every default is the one that workers use (`kgops.workloads.train.options`, `kgops.workloads.train.job`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import CUDA_GRAPH_MODES
from kgops.workloads.graphs.counts import Answers, Counts
from kgops.workloads.number_formats import applied_precision
from kgops.workloads.shared_options import LARGEST_GROUP
from kgops.workloads.train.models import ModelConfig, model_of_settings
from kgops.workloads.train.options import (
    GRAPH_WARM_UP,
    LOSS_EVERY,
    TRAIN_BATCH,
    TRAIN_LOSS,
    loss_chunk,
    one_positive,
)


@dataclass(frozen=True, slots=True)
class TrainShape:
    """A training of kgops' own ConvE. `queries` counts an epoch, inverses included where the model has them.
    `chunk` is the entities scored at once, and `low` the bytes of a number in the large products."""

    workload: ClassVar[str] = "train"

    model: ModelConfig
    on_gpu: bool
    train: int
    valid: int
    test: int
    queries: Answers
    known: tuple[Answers, Answers]  # tails and heads of the training triples
    loss: str
    one_positive: bool
    batch_size: int
    chunk: int
    precision: str
    low: int
    optimizer: str
    weight_decay: bool
    checkpointing: bool
    validates: bool
    epochs: int = 1
    graphs: bool = False  # CUDA graphs of whole steps
    compiled: bool = False
    n3: bool = False
    predicts_relations: bool = False

    @property
    def batch(self) -> int:
        """Queries of a usual batch."""
        return min(self.batch_size, self.queries.queries)

    @property
    def examples(self) -> int:
        """Of an epoch."""
        return self.queries.queries

    @property
    def last_batch(self) -> int:
        """Queries of an epoch's last batch."""
        if self.largest_batch > self.batch:
            return self.largest_batch
        return self.queries.queries % self.batch_size or self.batch

    @property
    def captured(self) -> list[bool]:
        """The steps that are captured as CUDA graphs, in their order: whether with the loss value."""
        if not self.graphs:
            return []
        usual = self.usual_batches
        ends_so = self.last_batch == self.batch
        found: list[bool] = []
        first = GRAPH_WARM_UP
        for step in range(first, min(usual * self.epochs, first + usual + LOSS_EVERY)):
            in_epoch = step % usual
            with_value = in_epoch % LOSS_EVERY == 0 or (ends_so and in_epoch + 1 == usual)
            if with_value not in found:
                found.append(with_value)
            if len(found) == 2:
                break
        return found

    @property
    def usual_batches(self) -> int:
        """Steps of an epoch that have the usual size."""
        return max(1, self.queries.queries // max(self.batch, 1) - (self.largest_batch > self.batch))

    @property
    def largest_batch(self) -> int:
        """A single last query joins the batch before it."""
        alone = self.queries.queries > self.batch_size and self.queries.queries % self.batch_size == 1
        return self.batch + alone

    @property
    def positives(self) -> int:
        """Of the batch of an epoch that has most, about."""
        q = self.queries
        mean, batch = q.answers / max(q.queries, 1), self.batch
        variance = max(q.squares / max(q.queries, 1) - mean * mean, 0.0)
        batches = max(q.queries / max(batch, 1), 1)
        # A batch is drawn without replacement: the more of the queries it takes, the less its sum varies.
        spread = math.sqrt(variance * batch * (1 - batch / max(q.queries, 1)))
        # It adds half of the largest query: counts of answers have long tails.
        likely = mean * batch + spread * math.sqrt(2 * math.log(1 + batches)) + q.most / 2
        return min(q.answers, max(math.ceil(likely), min(q.most + round(mean * (batch - 1)), q.answers)))


def train_shape(job: Job, counts: Counts, gpu: GpuFacts | None) -> TrainShape | None:
    """Of a job `train`; None for PyKEEN's own pipeline, whose models have no formula. No `gpu`: on the CPU."""
    if job.settings["engine"] != "kgops":
        return None
    model = model_of_settings(job.settings, counts.entities, counts.relations)
    return shape_of_training(model, job.settings, job.options, counts, gpu)


def shape_of_training(
    model: ModelConfig,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    counts: Counts,
    gpu: GpuFacts | None,
) -> TrainShape:
    precision = applied_precision(options.get("precision", "fp32"), gpu)
    batch_size = options.get("batch_size", TRAIN_BATCH)
    chunk = options.get("entity_chunk", "auto")
    device = "cpu" if gpu is None else "cuda"
    loss = settings["loss"] or TRAIN_LOSS
    single = one_positive(loss, settings["group_queries"])
    return TrainShape(
        model,
        gpu is not None,
        counts.train,
        counts.valid,
        counts.test,
        _queries(counts, single, settings["group_queries"], model.inverse),
        (counts.tails, counts.heads),
        loss,
        single,
        batch_size,
        loss_chunk(None if chunk == "auto" else chunk, batch_size, device),
        precision,
        2 if precision in ("fp16", "bf16") else 4,
        settings["optimizer"],
        bool(settings["weight_decay"]),
        bool(options.get("gradient_checkpointing", False)),
        settings["validate_every"] > 0 and counts.valid > 0,
        settings["num_epochs"],
        gpu is not None and _replays(options),
        gpu is not None and options.get("compile", "off") != "off",
        settings.get("regularizer") == "n3",
        bool(settings.get("relation_prediction")),
    )


def _replays(options: Mapping[str, Any]) -> bool:
    """Whether steps are captured as CUDA graphs."""
    mode, checkpointing = options.get("compile", "off"), options.get("gradient_checkpointing", False)
    return bool(options.get("cuda_graphs", False)) or (mode in CUDA_GRAPH_MODES and not checkpointing)


def _queries(counts: Counts, one_positive: bool, grouped: bool, inverse: bool) -> Answers:
    if one_positive:
        rows = counts.train * (2 if inverse else 1)
        return Answers(rows, rows, rows, min(rows, 1))
    asked = (counts.tails, counts.heads) if inverse else (counts.tails,)
    answers, squares = sum(one.answers for one in asked), sum(one.squares for one in asked)
    most = max(one.most for one in asked)
    if grouped:
        most = min(most, LARGEST_GROUP)
        return Answers(sum(one.groups for one in asked), answers, min(squares, most * answers), most)
    return Answers(sum(one.queries for one in asked), answers, squares, most)
