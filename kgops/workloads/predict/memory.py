"""The most memory a predict run on ConvE may take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kgops.gpus.facts import GpuFacts
from kgops.workloads.memory.budget import Moments, Parts, bounded, larger
from kgops.workloads.memory.peak import PeakMemory
from kgops.workloads.predict.options import PREDICT_ENCODED, PREDICT_PAIRS_AGAIN, PREDICT_WAITING
from kgops.workloads.predict.sizes import PredictShape
from kgops.workloads.tracin.memory import loaded, model_bytes
from kgops.workloads.train.job import ConvEConfig

_ID = 8
_ROW = 3 * _ID
# Of an answer in columns, and of the order in which triples are written; rows come one by one.
_ANSWER = 110
_ARROW = 72 << 20  # pyarrow, imported before anything is asked
# A CPU's convolution writes whole groups of so many channels, then copies them out. With AVX-512 they are as wide as
# this, on other CPUs half as wide, or there are none.
_ONEDNN_CHANNELS = 16


def moments(s: PredictShape) -> Moments:
    """Phases of `kgops.maths.predict.worker`, from the model to the rows that are written."""
    n = s.counts.train + s.counts.valid + s.counts.test
    run = Moments(Counter(data=0 if s.on_gpu else _ROW * n))
    run.held["workspace"] += _ARROW if s.parquet and not s.on_gpu else 0
    run.add("loading", loaded(s.model), Counter(checkpoint=model_bytes(s.model)))
    run.held += loaded(s.model)
    if not s.on_gpu:  # `KnownTriples` stays on the host
        run.add("predict", Counter(data=(_ROW + 4 * _ID) * n))
        run.held["data"] += (_ROW + _ID) * n
        run.add("writing", Counter(scores=_ANSWER * s.questions * s.listed))
    for parts in ranking(s):
        run.add("predict", parts)
    return run


def ranking(s: PredictShape) -> Iterator[Parts]:
    """Scores and the best of them, apart from the model."""
    entities, vector = s.model.num_entities, 4 * s.model.embedding_dim
    rows = min(PREDICT_ENCODED, entities)
    if s.pairs:  # `best_pairs`: the first chunk, whose scores are all among the best so far
        yield encoded(s, rows)
        plane, best = rows * s.chunk, (4 + _ID) * (s.kept + PREDICT_WAITING)
        # Scores and a copy, what is above the worst so far, where it is, its scores, its keys with two addends.
        yield Counter(evaluation=vector * rows, scores=best + (3 * 4 + 1 + 5 * _ID) * plane)
        return
    # `_Ranking.of_block`, the largest; without inverse relations as if heads were asked.
    held: Parts = Counter(evaluation=0 if s.model.inverse else vector * entities)
    if not s.model.inverse:
        yield encoded(s, rows)
        yield Counter(evaluation=2 * vector * entities)
    yield held + encoded(s, s.at_once)
    plane, kept = 4 * s.at_once * entities, s.at_once * s.kept
    held += Counter(evaluation=vector * s.at_once, scores=plane)
    before = (4 + _ID) * kept + (4 + 3 * _ID) * s.questions * s.kept  # with answers of the blocks before
    again = min(PREDICT_PAIRS_AGAIN, kept)
    exactly = 3 * vector * again + 3 * _ID * kept
    yield held + Counter(
        scores=max(plane, before + max(exactly, (2 * 4 + 4 * _ID) * s.kept))
    )  # exp of all for softmax


def encoded(s: PredictShape, rows: int) -> Parts:
    """`ConvE.encode`, at its convolution: there most is alive."""
    c: ConvEConfig = s.model
    vectors, maps = 4 * rows * c.embedding_dim, 4 * rows * c.features
    padded = -(-c.output_channels // _ONEDNN_CHANNELS) * _ONEDNN_CHANNELS
    inside = maps if s.on_gpu else 4 * rows * padded * c.map_height * c.map_width
    outside: Parts = Counter(evaluation=max(6 * vectors, 2 * vectors + 2 * maps))
    if s.on_gpu:
        return larger(outside, Counter(evaluation=4 * vectors + 2 * maps))
    return larger(outside, Counter(evaluation=4 * vectors + maps, workspace=inside if rows > 1 else 0))


def peak_memory(shape: PredictShape, gpu: GpuFacts | None, *, expandable: bool) -> PeakMemory:
    return bounded(moments(shape), gpu, on_gpu=shape.on_gpu, expandable=expandable)
