"""A predict run on ConvE as the allocator sees it, after `kgops.maths.predict.worker`."""

from __future__ import annotations

from kgops.gpus.facts import GpuFacts
from kgops.workloads.memory.ledger import Ledger
from kgops.workloads.memory.peak import PeakMemory, replayed
from kgops.workloads.predict.chunk_sizes import PREDICT_ENCODED, PREDICT_PAIRS_AGAIN, PREDICT_WAITING
from kgops.workloads.predict.sizes import PredictShape
from kgops.workloads.tracin.memory import walk_loaded_model
from kgops.workloads.train.ranking_memory import encoded_rows

_ID = 8
_ROW = 3 * _ID
_ANSWER = (
    110  # bytes of an answer in columns, and of the order in which triples are written; rows come one by one
)
_ARROW = 72 << 20  # pyarrow, imported before anything is asked


def walk_predict(ledger: Ledger, s: PredictShape) -> None:
    """From the model to the rows that are written."""
    ledger.phase = "loading"
    n = s.counts.train + s.counts.valid + s.counts.test
    held = [] if s.on_gpu else [ledger.take("data", _ROW * n)]
    held += [ledger.take("workspace", _ARROW)] if s.parquet and not s.on_gpu else []
    held += walk_loaded_model(ledger, s.model)
    ledger.phase = "predict"
    if not s.on_gpu:  # `KnownTriples` stays on the host
        held += [ledger.take("data", _ROW * n), ledger.take("data", _ID * n)]
        ledger.flash("data", *[_ID * n] * 3)
    walk_ranking(ledger, s)
    if not s.on_gpu:
        ledger.phase = "writing"
        ledger.flash("scores", _ANSWER * s.questions * s.listed)
    ledger.give(*held)


def walk_ranking(ledger: Ledger, s: PredictShape) -> None:
    """Scores and the best of them, beside the model."""
    if s.pairs:
        _walk_pairs(ledger, s)
    else:
        _walk_block(ledger, s)


def _walk_block(ledger: Ledger, s: PredictShape) -> None:
    """`_Ranking.of_block`, the largest; without inverse relations as if heads were asked."""
    part, batch, dim = "evaluation", s.at_once, s.model.embedding_dim
    held = []
    if not s.model.inverse:
        vectors = 4 * dim * s.model.num_entities
        encoded_rows(ledger, part, s.model, min(PREDICT_ENCODED, s.model.num_entities), s.on_gpu)
        ledger.flash(part, vectors, vectors)
        held.append(ledger.take(part, vectors))
    encoded_rows(ledger, part, s.model, batch, s.on_gpu)
    held += [ledger.take(part, 4 * dim * batch), ledger.take("scores", 4 * batch * s.model.num_entities)]
    ledger.flash("scores", 4 * batch * s.model.num_entities)  # for softmax: exp of all scores
    kept = batch * s.kept
    held.append(ledger.take("scores", (4 + _ID) * kept))
    held.append(ledger.take("scores", (4 + 3 * _ID) * s.questions * s.kept))  # answers of the blocks before
    again = min(PREDICT_PAIRS_AGAIN, kept)
    ledger.flash("scores", *[4 * dim * again] * 3, (2 * 4 + 2 * _ID) * kept)
    ledger.flash("scores", (2 * 4 + 4 * _ID) * s.kept)
    ledger.give(*held)


def _walk_pairs(ledger: Ledger, s: PredictShape) -> None:
    """`best_pairs`: the first chunk, whose scores are all among the best so far."""
    part, dim = "evaluation", s.model.embedding_dim
    batch = min(PREDICT_ENCODED, s.model.num_entities)
    encoded_rows(ledger, part, s.model, batch, s.on_gpu)
    vectors = ledger.take(part, 4 * dim * batch)
    plane = batch * s.chunk
    scores = ledger.take("scores", 4 * plane)
    best = ledger.take("scores", (4 + _ID) * (s.kept + PREDICT_WAITING))
    # A copy, what is above the worst so far, where it is, its scores, and its keys with two addends.
    ledger.flash("scores", 4 * plane, plane, 2 * _ID * plane, 4 * plane, *[_ID * plane] * 3)
    ledger.give(best, scores, vectors)


def peak_memory(shape: PredictShape, gpu: GpuFacts | None, *, expandable: bool) -> PeakMemory:
    def walk(ledger: Ledger) -> None:
        walk_predict(ledger, shape)

    return replayed(walk, gpu, on_gpu=shape.on_gpu, expandable=expandable)
