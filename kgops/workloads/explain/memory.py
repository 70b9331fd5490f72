"""The most memory an explain run on ConvE may take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kgops.gpus.facts import GpuFacts
from kgops.workloads.explain.sizes import ExplainShape
from kgops.workloads.graphs.block_counts import Block
from kgops.workloads.memory.budget import Moments, Parts, bounded, larger
from kgops.workloads.memory.peak import PeakMemory
from kgops.workloads.tracin.factor_memory import scratch_parts
from kgops.workloads.tracin.memory import (
    block_made,
    engines,
    keep,
    loaded,
    model_bytes,
    pairs,
    retraining,
)
from kgops.workloads.tracin.sides import Side
from kgops.workloads.tracin.sizes import TracinShape

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
        run.add("explain", Counter(data=(_ROW + 4 * _ID) * n))
        run.held["data"] += (_ROW + _ID) * n
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


def peak_memory(shape: ExplainShape, gpu: GpuFacts | None, *, expandable: bool) -> PeakMemory:
    return bounded(moments(shape, gpu), gpu, on_gpu=shape.on_gpu, expandable=expandable)
