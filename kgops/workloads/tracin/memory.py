"""The most memory a TracIn run on ConvE may take, by the sizes of its blocks, chunks and tiles.

Each function names the one in `kgops.maths.tracin` that allocates what it counts, and is an upper bound of that.
Sizes are in bytes; ids and triples are int64. `factor_memory` has the factors of one block's gradients.
"""

from __future__ import annotations

from collections import Counter

from kgops.gpus.facts import GpuFacts
from kgops.workloads.memory.budget import Moments, Parts, bounded, larger, times
from kgops.workloads.memory.phases import PeakMemory
from kgops.workloads.tracin.factor_memory import (
    Made,
    Side,
    engine,
    factors,
    scratch_parts,
    sides_of,
    workspace,
)
from kgops.workloads.tracin.options import (
    TRACIN_ENTERING,
    TRACIN_MERGED_COLUMNS,
    TRACIN_RANKED_FIRST,
    TRACIN_TIES_AT_ONCE,
    TRACIN_VALIDATED_TESTS,
    tests_ranked_at_once,
)
from kgops.workloads.tracin.sizes import TracinShape, compared_ways
from kgops.workloads.train.memory import peak_memory as peak_of_training
from kgops.workloads.train.models import ModelConfig, VectorConfig, buffer_bytes, weight_bytes
from kgops.workloads.train.options import EVALUATION_CHUNK, EVALUATION_QUERIES
from kgops.workloads.train.sizes import TrainShape

_ID = 8
_ROW = 3 * _ID


def peak_memory(shape: TracinShape, gpu: GpuFacts | None, *, expandable: bool) -> PeakMemory:
    return bounded(moments(shape, gpu), gpu, on_gpu=shape.on_gpu, expandable=expandable)


def moments(s: TracinShape, gpu: GpuFacts | None) -> Moments:
    """Phases of `kgops.maths.tracin.worker`, from the checkpoints to the files of the last test."""
    n = s.counts.train
    run = Moments(Counter(data=0 if s.on_gpu else _ROW * (n + s.counts.valid + s.counts.test)))
    graph: Parts = Counter()
    if (s.filtered or s.does == "filter") and not s.on_gpu:
        building, graph["graph"] = graph_bytes(n, s.model.num_entities)
        run.add("neighbourhood", Counter(graph=building))
    if s.does == "filter":
        return run
    run.add("loading", loaded(s.model, s.checkpoints), Counter(checkpoint=model_bytes(s.model)))
    run.held += loaded(s.model, s.checkpoints)
    if s.knows_all:
        run.held["data"] += known_tails(s, run)
    if s.does == "self":
        _itself(s, run)
        return run
    _scan(s, run, graph, is_traced=True)
    if not s.on_gpu:
        run.add("writing", Counter(scores=12 * s.tests * s.best + _ROW * s.best))
    for way in compared_ways(s):
        pairs = way.tests * way.counts.train
        sample = Counter(data=0 if s.on_gpu else _ROW * way.counts.train)
        # Both scores in float32: where torch has compiled anything, a frame keeps what it passed on.
        run.add("agreement", sample, Counter(scores=0 if s.on_gpu else (8 * 7 + 4 * 2) * pairs))
        own = Moments(run.held, sample, Counter(scores=0 if s.on_gpu else 4 * pairs))
        _scan(way, own, Counter(), is_traced=False)
        for parts in own.phases.values():
            run.add("agreement", parts - run.held)
    if s.retrained is not None:
        tests = min(s.tests, TRACIN_VALIDATED_TESTS)
        run.held["scores"] += 4 * tests * n
        retraining(s.retrained, tests, run, gpu)
    return run


def retraining(again: TrainShape, tests: int, run: Moments, gpu: GpuFacts | None) -> None:
    """`kgops.maths.tracin.retraining`: a training, while all that is known stays sorted for ranks."""
    known = _ID * (again.train + again.valid + again.test + tests)
    training = peak_of_training(again, gpu, expandable=True)
    run.add("retraining", Counter(evaluation=20 * known))
    # Buffers of `Evaluator` stay from one training to the next.
    planes = min(EVALUATION_CHUNK["cuda" if again.on_gpu else "cpu"], again.model.num_entities)
    planes *= 8 * min(EVALUATION_QUERIES, 2 * tests)
    own = Counter(data=(_ROW + 1) * again.train, evaluation=8 * known + planes)  # the triples it is left with
    run.add("retraining", Counter(training.parts), own)


def graph_bytes(triples: int, entities: int) -> tuple[int, int]:
    """`Neighbourhood.__init__` if no two triples join the same entities: while it is built, and what it keeps. Which
    edges lie on short paths is searched in trees whose number only the graph decides: that is not counted."""
    return _ID * (15 * triples + 5 * entities), _ID * (4 * triples + 2 * entities)


def model_bytes(c: ModelConfig) -> int:
    return weight_bytes(c) + buffer_bytes(c)


def loaded(c: ModelConfig, checkpoints: int = 1) -> Parts:
    """`load_point`, of each checkpoint."""
    biases = 4 * c.num_entities if isinstance(c, VectorConfig) else 0  # zeros, in no file
    return Counter(weights=checkpoints * (model_bytes(c) + biases))


def known_triples(run: Moments, phase: str, triples: int, *, answers: bool) -> None:
    """`KnownTriples`, on the host: keys and the triples; with the `answers` of questions in both directions as well."""
    run.add(phase, Counter(data=(_ROW + 4 * _ID) * triples))
    run.held["data"] += (_ROW + _ID) * triples
    if answers:
        run.add(phase, Counter(data=17 * _ID * triples))
        run.held["data"] += 4 * _ID * triples


def known_tails(s: TracinShape, run: Moments) -> int:
    """`KnownTails`: all training rows, sorted, with their answers; storages keep the size of the rows."""
    rows = s.counts.train * (2 if s.model.inverse else 1)
    run.add("loading", Counter(data=88 * rows))
    queries = s.counts.tails.queries + (s.counts.heads.queries if s.model.inverse else 0)
    return _ID * (3 * rows + queries)


def _scan(s: TracinShape, run: Moments, graph: Parts, *, is_traced: bool) -> None:
    """`kgops.maths.tracin.scan` of one tile of test triples, and what is found of them if it `is_traced`."""
    n, tile, best = s.counts.train, s.tests_of_a_tile, s.best
    test = Side.of_tests(s, s.tests_of_a_block)
    held = run.held + graph + engines(s)
    has_union = is_traced and not (s.ranks or s.on_gpu)
    held["data"] += (_ID + (_ROW if s.on_gpu or has_union else 0)) * n
    if has_union:  # the tests' candidates, as numpy sorts them out
        own = _ID * n * tile if s.filtered else 0
        run.add("loading", graph, Counter(graph=own, data=_ID * n + 4 * own))
        held += Counter(graph=own, data=_ID * n)
    every = 0 if s.ranks or s.on_gpu else 4 * tile * n
    if not is_traced:
        held["scores"] += every
    if s.ranks:
        held["scores"] += 24 * tile * best  # of tests before these, and of these
    kept = keep(s, test)
    scan = Moments(held)
    scan.add("tests", Counter(data=4 * _ID * n))
    scan.add("tests", times(kept.held + scratch_parts(kept.scratch), s.checkpoints - 1), kept.peak)
    scan.held += times(kept.held, s.checkpoints)
    if is_traced:
        scan.held["scores"] += every
    sides = sides_of(s, test)
    made = [block_made(s, side, test) for side in sides]
    scan.held += times(scratch_parts(kept.scratch, *(one.scratch for one in made)), s.checkpoints)
    waiting = min(n, TRACIN_MERGED_COLUMNS - 1) if s.ranks else 0
    for side, one in zip(sides, made, strict=True):
        scores = 4 * side.triples * test.triples
        beside = Counter(
            data=_ROW * side.triples,
            scores=4 * waiting * test.triples + (scores if s.checkpoints > 1 else 0),
        )
        scan.add("blocks", beside, larger(one.peak, one.held + pairs(s, side, test)))
    if s.ranks:
        of_block = 4 * test.triples * min(s.block, n)
        scan.add("ranking", Counter(scores=of_block + ranking(s, test.triples)))
    elif is_traced and not s.on_gpu:
        own = 12 * (tile - 1) * best + 24 * n + max(16 * n, _ID * n + 12 * best)
        run.add("results", graph, Counter(data=_ID * n, scores=every + own))
    for phase, parts in scan.phases.items():
        run.add(phase, parts - run.held)


def engines(s: TracinShape) -> Parts:
    """`Engine.__init__` of every checkpoint, and what the score keeps of the training."""
    kept, beside = s.score_bytes
    return times(engine(s), s.checkpoints) + Counter(score=s.checkpoints * kept + beside)


def keep(s: TracinShape, test: Side) -> Made:
    """`Engine.keep` at one checkpoint: the factors, and the peak while they are made."""
    made = factors(s.of_tests, test, keep=True)
    places = 2 * _ID * (test.samples + test.groups)
    kept = made.held + Counter(factors=places)
    scratch = scratch_parts(made.scratch)
    copying = kept + scratch + Counter(factors=2 * places)
    products, sampling = s.curvature_bytes
    curvature = larger(workspace(s) + Counter(score=products), Counter(score=sampling))
    peak = larger(made.peak + scratch, copying, kept + scratch + curvature)
    return Made(kept, peak, made.scratch)


def block_made(s: TracinShape, side: Side, test: Side) -> Made:
    """`Engine.scores`: a block's factors, to multiply with the tests' factors."""
    against = 0 if s.of_tests.loss == "target" else test.groups
    made = factors(s, side, keep=False, against=against, places=test.samples + test.groups)
    moving = 4 * s.groups_at_once(side.groups) * s.model.features if side.moves_forward and s.goes_deep else 0
    return Made(made.held, made.peak, {**made.scratch, "moving_maps": moving})


def pairs(s: TracinShape, train: Side, test: Side) -> Parts:
    """`Engine.scores`: (tests, trains) of one checkpoint, apart from the factors of both sides."""
    directions = (1 + s.both_directions) * 4 * train.triples * test.triples
    most = max(pairs_of_samples(s, train, test), 4 * train.rows * test.rows + directions)
    return Counter(scores=most)


def pairs_of_samples(s: TracinShape, train: Side, test: Side) -> int:
    """`pair_scores`: the result and four planes of pairs, as `_add_heads` has them; fewer in its other terms."""
    both, across = (
        4 * train.samples * test.samples,
        max(train.samples * test.groups, train.groups * test.samples),
    )
    planes = max(4 * both + across, both + 4 * train.groups * test.groups)
    if (
        train.moves_forward and s.goes_deep
    ):  # `_moved_projection`: what moves of all groups, and patches of some
        image = 8 * train.groups * s.model.embedding_dim
        patches = 4 * s.groups_at_once(train.groups) * (s.taps + 1) * s.places
        planes = max(planes, image + max(4 * image, 2 * image + 3 * patches))
    rows = 4 * train.rows * test.samples if s.knows_all else 0  # back to the rows that samples stand for
    return max(both + planes, rows + max(both, 4 * train.rows * test.rows))


def ranking(s: TracinShape, tests: int) -> int:
    """`TopTriples.finish`: of the columns that waited the k highest, then the lowest. Of those found before, at most k
    more enter, but all where triples share their gradient, so that they tie."""
    columns = min(s.counts.train, TRACIN_MERGED_COLUMNS - 1 + s.block)
    k, rows = min(s.best, columns), min(tests, tests_ranked_at_once(columns))
    first = min(columns, max(k, TRACIN_RANKED_FIRST))
    entering = max(3 * columns, columns + 56 * k, 99 * k, 21 * first + 12 * k)
    torn = columns
    if s.knows_all:
        tied = max(columns - first, min(columns, max(0, s.counts.train - TRACIN_MERGED_COLUMNS)))
        if s.counts.tails.most and "entities" in s.names:  # elsewhere other queries may have the score 0, too
            tied = min(tied, k + s.counts.tails.most)
            torn = min(columns, max(first, 2 * k + s.counts.tails.most))
        entering = max(entering, TRACIN_ENTERING * tied + 24 * k)
        torn *= min(rows, TRACIN_TIES_AT_ONCE)
    found = (
        12 * tests * k * (1 if rows == tests else 3)
    )  # the highest, and those of some tests before they are joined
    return _ID * columns + 8 * tests * columns + found + rows * entering + 36 * torn


def _itself(s: TracinShape, run: Moments) -> None:
    """`self_influence`: each block with itself, of two directions their product with each other as well."""
    n, c = s.counts.train, s.model
    held = Counter(data=(_ROW * s.on_gpu + _ID) * n, scores=4 * n) + engines(s)
    run.add("blocks", held, Counter(data=3 * _ID * n))
    scratches, moments = [], []
    for side in sides_of(s, None):
        own, d = factors(s, side, keep=True), 4 * c.embedding_dim
        squares = 4 * c.num_entities * side.groups if s.loss != "target" else 0
        rows = 4 * side.samples * c.output_channels * (s.taps + 3)
        beside = Counter(factors=max(squares, rows, 2 * d * side.samples, 4 * side.groups * c.features))
        moments += [own.peak, own.held + beside]
        scratches.append(own.scratch)
        if s.both_directions:
            places = side.samples + side.groups
            other = factors(s, side, keep=False, against=side.groups, places=places)
            asked = own.held + Counter(factors=2 * _ID * places)
            moments += [
                asked + other.peak,
                asked + other.held + Counter(scores=pairs_of_samples(s, side, side)),
            ]
            scratches.append(other.scratch)
    kept = times(scratch_parts(*scratches), s.checkpoints)
    run.add("blocks", held, kept, Counter(data=_ROW * s.block), larger(*moments))
    run.add("results", Counter(scores=24 * n))
