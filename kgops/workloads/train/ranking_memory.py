"""Filtered evaluation as the allocator sees it, line by line after `kgops.maths.train.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, expm1, sqrt

from kgops.workloads.graphs.counts import Answers
from kgops.workloads.graphs.evaluation_counts import EVALUATION_QUERIES, EvaluationBlocks, QueryBlock
from kgops.workloads.memory.ledger import Held, Ledger, Scratch
from kgops.workloads.train.job import ConvEConfig
from kgops.workloads.train.options import EVALUATION_CHUNK, EVALUATION_ENCODED
from kgops.workloads.train.sizes import TrainShape
from kgops.workloads.train.step_memory import flash_folded_columns

_ID = 8
_ROW = 3 * _ID
# A CPU's convolution writes whole groups of so many channels, then copies them out. With AVX-512 they are as wide as
# this, on other CPUs half as wide, or there are none: that is an upper bound, and so a part of its own.
_ONEDNN_CHANNELS = 16
_EPS = 1.2e-7  # of float32
_PAIRS_AT_ONCE, _PAIRS_LISTED = 1 << 10, 1 << 16


def walk_evaluator(ledger: Ledger, s: TrainShape, known: int) -> list[Held]:
    """`_Answers`: all known triples in both directions, sorted by query."""
    copied = [ledger.take("evaluation", _ROW * known)] if s.on_gpu else []
    rows = ledger.take("evaluation", 2 * _ROW * known)
    ledger.flash("evaluation", _ROW * known, _ROW * known)
    each = 2 * _ID * known
    keys = ledger.take("evaluation", each)
    ledger.flash("evaluation", *[each] * 3)
    answers = ledger.take("evaluation", each)
    ledger.flash("evaluation", each)
    ledger.give(rows, *copied)
    return [keys, answers]


def walk_evaluation(
    ledger: Ledger, s: TrainShape, scratch: Scratch, ranked: EvaluationBlocks, triples: int, known: int
) -> None:
    """`Evaluator.__call__` on `triples`, with so many `known`; its buffers live on in `scratch`."""
    part, c = "evaluation", s.model
    held = [ledger.take(part, size * triples) for size in (2 * _ID, _ROW, _ROW)]
    if s.on_gpu:
        held.append(ledger.take(part, _ROW * triples))
    if c.inverse:
        held.append(ledger.take(part, 2 * _ROW * triples))
        held.append(_order(ledger, 2 * triples))
        blocks = _asked(s, ranked.both, s.known, 2 * triples, triples, known)
        _walk_blocks(ledger, s, scratch, blocks)
    else:
        order = _order(ledger, triples)
        _walk_blocks(ledger, s, scratch, _asked(s, ranked.tails, s.known[:1], triples, triples, known))
        ledger.give(order)
        held.append(_order(ledger, triples))
        _walk_heads(ledger, s, scratch, ranked, triples, known)
    ledger.give(*held)


def _order(ledger: Ledger, rows: int) -> Held:
    order = ledger.take("evaluation", _ID * rows)
    ledger.flash("evaluation", *[_ID * rows] * 4)
    return order


def _walk_blocks(ledger: Ledger, s: TrainShape, scratch: Scratch, blocks: Sequence[QueryBlock]) -> None:
    """Each block of tail queries is encoded while the vectors and the buffers of the one before are there."""
    before: Held | None = None
    for queries, distinct, answers in blocks:
        block = ledger.take("evaluation", _ROW * queries)
        vectors = _encode(ledger, s, queries, distinct)
        if before is not None:
            ledger.give(before)
        _ranks(ledger, s, scratch, queries, answers)
        ledger.give(block)
        before = vectors
    if before is not None:
        ledger.give(before)


def _asked(
    s: TrainShape,
    counted: Sequence[QueryBlock],
    sides: Sequence[Answers],
    queries: int,
    triples: int,
    known: int,
) -> Sequence[QueryBlock]:
    """As it was counted; else, in a graph of so many answers, about."""
    if counted:
        return counted
    batch = min(EVALUATION_QUERIES, queries)
    answers = max(_known(s, side, batch, triples, known) for side in sides)
    return [QueryBlock(batch, _distinct(s, queries, batch), answers)] * (2 if batch < queries else 1)


def _distinct(s: TrainShape, queries: int, batch: int) -> int:
    """Of a block's queries, in a set of so many: few where a small graph asks the same again and again."""
    tails, heads = s.known
    pool = 2 * (tails.queries + (heads.queries if s.model.inverse else 0))
    pool = max(1, min(pool, s.model.num_entities * s.model.relation_rows))
    return min(batch, ceil(1.1 * pool * -expm1(-queries / pool)))


def _walk_heads(
    ledger: Ledger, s: TrainShape, scratch: Scratch, ranked: EvaluationBlocks, triples: int, known: int
) -> None:
    """Head queries without inverse relations: all entities are encoded, once for each relation."""
    entities = s.model.num_entities
    everything = ledger.take("evaluation", _ID * entities)
    vectors = _encode(ledger, s, entities, entities)
    for queries, _, answers in _asked(s, ranked.heads, s.known[1:], triples, triples, known):
        tails = ledger.take("evaluation", (4 * s.model.embedding_dim + 4 + _ROW) * queries)
        _ranks(ledger, s, scratch, queries, answers)
        ledger.give(tails)
    if (ranked.relations or min(s.model.num_relations, triples)) > 1:
        second = ledger.take("evaluation", _ID * entities)
        again = _encode(ledger, s, entities, entities)  # while the last relation's vectors are alive
        ledger.give(vectors, everything)
        vectors, everything = again, second
    ledger.give(vectors, everything)


def _encode(ledger: Ledger, s: TrainShape, queries: int, distinct: int) -> Held:
    """`Evaluator._encode`: the distinct queries piece by piece, then a row for each query."""
    part, vector = "evaluation", 4 * s.model.embedding_dim
    pairs = [ledger.take(part, size) for size in (2 * _ID * queries, queries, 2 * _ID * distinct)]
    piece = min(EVALUATION_ENCODED, distinct)
    before = (distinct - 1) // piece
    done = ledger.take_equal(part, vector * piece, before)
    encoded_rows(ledger, part, s.model, piece, s.on_gpu)
    done.append(ledger.take(part, vector * (distinct - before * piece)))
    joined = ledger.take(part, vector * distinct)
    ledger.flash(part, _ID * queries, _ID * queries)
    places = ledger.take(part, _ID * queries)
    vectors = ledger.take(part, vector * queries)
    ledger.give(places, joined, *done, *pairs)
    return vectors


def encoded_rows(ledger: Ledger, part: str, c: ConvEConfig, rows: int, on_gpu: bool) -> None:
    """`ConvE.encode` in evaluation, at its convolution: there most is alive."""
    vectors, places = 4 * rows * c.embedding_dim, c.map_height * c.map_width
    maps = 4 * rows * c.features
    padded = -(-c.output_channels // _ONEDNN_CHANNELS) * _ONEDNN_CHANNELS
    inside = maps if on_gpu else 4 * rows * padded * places
    held = [ledger.take(part, size) for size in (vectors, vectors, 2 * vectors)]
    ledger.flash(part, 2 * vectors)
    copied = ledger.take(part if on_gpu else "workspace", inside if rows > 1 else 0)
    ledger.flash(part, maps)
    ledger.give(copied)
    ledger.give(held.pop())
    ledger.use_cublas()
    ledger.flash(part, maps, maps)
    ledger.give(*held)


def _ranks(ledger: Ledger, s: TrainShape, scratch: Scratch, batch: int, known: int) -> None:
    """`Evaluator._ranks` on the first chunk of candidates."""
    part, c = "evaluation", s.model
    vectors, ids = 4 * batch * c.embedding_dim, _ID * (known + batch)
    ledger.flash(part, vectors, vectors, vectors)
    ledger.flash(part, 4 * c.num_entities)
    # The true score, its margin, what is above and below it, what was counted there, and a range.
    by_query = ledger.take(part, (4 * 4 + 2 * 8 + _ID) * batch)
    rows = ledger.take(part, _ID * known)
    ledger.flash(part, *[_ID * known] * 3)
    answers = [rows, ledger.take(part, _ID * known)]
    ledger.flash(part, ids, ids, ids)
    flat = ledger.take(part, ids)
    chunk = min(EVALUATION_CHUNK["cuda" if s.on_gpu else "cpu"], c.num_entities)
    plane = chunk * batch
    place = [ledger.take(part, ids), ledger.take(part, known + batch)]
    scratch.take(part, "plane", 4 * plane)
    ledger.flash(part, ids, ids)
    scratch.take(part, "marks", 4 * plane)
    if s.on_gpu:
        flash_folded_columns(ledger, part, chunk, batch)
    near = ledger.take(part, plane)
    ledger.flash(part, plane, plane)
    if c.num_entities > chunk:  # the next chunk's, while the last one's is there
        following = min(chunk, c.num_entities - chunk) * batch
        ledger.flash(part, following, following, following)
    pairs = ceil(plane * _near_share(c))
    vectors = 4 * c.embedding_dim * min(_PAIRS_AT_ONCE, pairs)
    ledger.flash(part, 2 * _ID * min(_PAIRS_LISTED, pairs), *[vectors] * 3)
    ledger.give(near, *place, flat, *answers, by_query)


def _near_share(c: ConvEConfig) -> float:
    """Of candidates, how many lie within rounding of the true score: the margin over how far scores spread.

    Without batch norm an untrained model gives all the same score, so all of them may."""
    return 4 * (c.embedding_dim + 2) * _EPS * sqrt(c.embedding_dim) if c.batch_norm else 1.0


def _known(s: TrainShape, side: Answers, batch: int, triples: int, known: int) -> int:
    """Known answers of a block of queries: many triples ask what has many answers, side by side. Training is
    what was counted; `known` says how many triples there are in all."""
    if not side.answers:
        return 0
    share = known / max(s.train, 1)
    usual = 1.25 * share * side.squares / side.answers
    times = min(batch, ceil(side.most * triples / max(s.train, 1)))
    return ceil(max(times * side.most * share + (batch - times) * usual * 0.5, batch * usual))
