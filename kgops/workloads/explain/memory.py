"""An explain run on ConvE as the allocator sees it, after `kgops.maths.explain.worker`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.workloads.explain.chunk_sizes import EXPLAIN_RIVALS
from kgops.workloads.graphs.block_counts import Block
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.memory.ledger import Ledger, Scratch
from kgops.workloads.memory.peak import PeakMemory, replayed
from kgops.workloads.tracin.factor_memory import Side
from kgops.workloads.tracin.memory import walk_loaded_model
from kgops.workloads.tracin.pair_memory import walk_pairs
from kgops.workloads.tracin.scan_memory import walk_block, walk_engines, walk_kept
from kgops.workloads.tracin.sizes import TracinShape, fisher_shape, retrained_shape
from kgops.workloads.train.job import ConvEConfig
from kgops.workloads.train.memory import walk_retraining
from kgops.workloads.train.sizes import TrainShape

_ID = 8
_ROW = 3 * _ID


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


def walk_explain(ledger: Ledger, s: ExplainShape) -> None:
    """From the model to the trainings that verify what was found."""
    ledger.phase = "loading"
    counts = s.traced.counts
    n = counts.train + counts.valid + counts.test
    held = [] if s.on_gpu else [ledger.take("data", _ROW * n)]
    model = walk_loaded_model(ledger, s.traced.model)
    ledger.phase = "explain"
    if not s.on_gpu:  # `KnownTriples` stays on the host
        held += [ledger.take("data", _ROW * n), ledger.take("data", _ID * n)]
        ledger.flash("data", *[_ID * n] * 3)
    walk_influences(ledger, s.traced)
    if s.retrained is not None:
        walk_retraining(ledger, s.retrained, s.predictions)
    ledger.give(*held, *model)


def walk_influences(ledger: Ledger, s: TracinShape) -> None:
    """`necessary.Influences`: the curvature once, then each prediction's candidates by blocks."""
    if not s.on_gpu:
        _walk_queries(ledger, s)
    engines = walk_engines(ledger, s)
    scores = 4 * s.model.num_entities  # of the question, twice: its own and those of what is not known
    ledger.flash("scores", scores, scores)
    asked = Side(s.tests, s.tests, 1, s.tests)
    scratches = [Scratch(ledger)]
    kept = walk_kept(ledger, s, scratches, asked)
    block = Block(0, s.block, s.block * s.rows_each, 0, 0)  # candidates of two entities seldom share a query
    side = Side.of_block(s, block, asked)
    made = walk_block(ledger, s, scratches[0], side, asked)
    ledger.give(walk_pairs(ledger, s, scratches[0], side, asked), *made, *kept)
    scratches[0].close()
    ledger.give(*engines)


def _walk_queries(ledger: Ledger, s: TracinShape) -> None:
    """`Training.queries`: all rows of the training, and the distinct ones in their order."""
    rows = s.rows_each * s.counts.train
    held = [ledger.take("data", _ROW * rows)]
    ledger.flash("data", 2 * _ID * rows, *[_ID * rows] * 5)
    ledger.give(*held)


def peak_memory(shape: ExplainShape, gpu: GpuFacts | None, *, expandable: bool) -> PeakMemory:
    def walk(ledger: Ledger) -> None:
        walk_explain(ledger, shape)

    return replayed(walk, gpu, on_gpu=shape.on_gpu, expandable=expandable)
