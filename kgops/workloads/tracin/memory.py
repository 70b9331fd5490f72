"""A TracIn run on ConvE as the allocator sees it, after `kgops.maths.tracin.worker`: checkpoints, and what follows.

`scan_memory`, `factor_memory`, `pair_memory` and `graph_memory` have the rest.
"""

from __future__ import annotations

from dataclasses import replace

from kgops.gpus.facts import GpuFacts
from kgops.workloads.memory.ledger import Held, Ledger, Scratch, ends
from kgops.workloads.memory.peak import PeakMemory, replayed
from kgops.workloads.tracin.chunk_sizes import TRACIN_VALIDATED_TESTS
from kgops.workloads.tracin.factor_memory import Side, walk_factors
from kgops.workloads.tracin.graph_memory import walk_neighbourhood
from kgops.workloads.tracin.pair_memory import walk_samples
from kgops.workloads.tracin.scan_memory import walk_engines, walk_scan
from kgops.workloads.tracin.sizes import TracinShape, compared_ways
from kgops.workloads.train.conve_weights import buffer_bytes, moved_sizes, weight_sizes
from kgops.workloads.train.job import ConvEConfig
from kgops.workloads.train.memory import walk_retraining
from kgops.workloads.train.step_memory import flash_folded_columns

_ID = 8
_ROW = 3 * _ID


def walk_tracin(ledger: Ledger, s: TracinShape) -> None:
    """From the checkpoints to what is written of the last test."""
    ledger.phase = "loading"
    splits = s.counts.train, s.counts.valid, s.counts.test
    triples = [] if s.on_gpu else [ledger.take("data", _ROW * n) for n in splits]
    if s.does == "filter":
        walk_neighbourhood(ledger, s)
        ledger.give(*triples)
        return
    models = [walk_loaded_model(ledger, s.model) for _ in range(s.checkpoints)]
    known = _known_tails(ledger, s) if s.knows_all else []
    if s.does == "self":
        _walk_itself(ledger, s)
    else:
        _walk_tests(ledger, s)
    ledger.give(*triples, *known, *[held for model in models for held in model])


def _walk_tests(ledger: Ledger, s: TracinShape) -> None:
    """Scoring; where options change scores, the exact ones of a sample; and trainings without what was found."""
    graph = walk_neighbourhood(ledger, s) if s.filtered else []
    walk_scan(ledger, s)
    ledger.give(*graph)
    if not s.on_gpu:
        _walk_writing(ledger, s)
    ours: list[Held] = []
    for way in compared_ways(s):
        ledger.phase = "agreement"
        pairs = way.tests * way.counts.train
        if s.on_gpu:  # the sample and its scores are on the host
            walk_scan(ledger, way, is_traced=False)
            continue
        sample = ledger.take("data", _ROW * way.counts.train)
        walk_scan(ledger, way, is_traced=False)
        if ours:
            ledger.flash("scores", *[8 * pairs] * 7)  # both in float64, how far apart, and their ranks
        ours = ours or [ledger.take("scores", 4 * pairs)]
        ledger.give(sample)
    ledger.give(*ours)
    if s.retrained is not None:
        ledger.phase = "validation"
        tests = min(s.tests, TRACIN_VALIDATED_TESTS)
        found = ledger.take("scores", 4 * tests * s.counts.train)
        walk_retraining(ledger, s.retrained, tests)
        ledger.give(found)


def _walk_writing(ledger: Ledger, s: TracinShape) -> None:
    """`Outputs.finish`: the parts of all tests, read back, and the triples of one."""
    ledger.phase = "writing"
    best = min(s.top_k or s.counts.train, s.counts.train)
    parts = ledger.take("scores", 12 * s.tests * best)
    ledger.flash("scores", _ROW * best)
    ledger.give(parts)


def _walk_itself(ledger: Ledger, s: TracinShape) -> None:
    """`self_influence`: each block with itself."""
    engines = walk_engines(ledger, s)
    ledger.phase = "blocks"
    n = s.counts.train
    rows = ledger.take("data", _ROW * n if s.on_gpu else 0)
    out = ledger.take("scores", 4 * n)
    order = ledger.take("data", _ID * n)
    ledger.flash("data", *[_ID * n] * 4)
    scratches = [Scratch(ledger) for _ in range(s.checkpoints)]
    for block in s.counts.groups.blocks(s.block, n, both_directions=s.both_directions).found:
        side = Side.of_block(s, block, None)
        cut = ledger.take("data", _ROW * side.triples if s.model.inverse else 0)
        for scratch in ends(scratches):
            _walk_self_scores(ledger, s, scratch, side)
        ledger.give(cut)
    for scratch in scratches:
        scratch.close()
    ledger.give(order, rows, *engines)
    ledger.phase = "results"
    ledger.flash("scores", _ID * n, 4 * n, _ID * n)
    ledger.give(out)


def _walk_self_scores(ledger: Ledger, s: TracinShape, scratch: Scratch, side: Side) -> None:
    """`Engine.self_scores`; of two directions their product with each other as well."""
    c, part = s.model, "factors"
    kept = walk_factors(ledger, s, scratch, side, keep=True)
    if s.loss != "target":
        squares = ledger.take(part, 4 * c.num_entities * side.groups)
        if s.on_gpu:
            flash_folded_columns(ledger, part, c.num_entities, side.groups)
        ledger.give(squares)
    small = 4 * side.samples * c.output_channels * (c.channels * c.kernel_height * c.kernel_width + 3)
    ledger.flash(part, max(small, 8 * side.samples * c.embedding_dim, 4 * side.groups * c.features))
    if s.both_directions:
        places = 2 * _ID * (side.samples + side.groups)
        ledger.flash(part, places, places)
        asked = ledger.take(part, places)
        places = side.samples + side.groups
        other = walk_factors(ledger, s, scratch, side, keep=False, against=side.groups, places=places)
        plain = replace(s, gram_format=s.gram_format._replace(size=4), projection=None)
        ledger.give(walk_samples(ledger, plain, scratch, side, side))
        ledger.give(asked, *other)
    ledger.give(*kept)


def walk_loaded_model(ledger: Ledger, c: ConvEConfig) -> list[Held]:
    """`load_point`: what was read lives until it has been copied into the model."""
    sizes = [*weight_sizes(c), buffer_bytes(c)]
    saved = ledger.take_together("checkpoint", sizes)
    model = ledger.take_together("weights", moved_sizes(c))
    ledger.give(*saved)
    return model


def _known_tails(ledger: Ledger, s: TracinShape) -> list[Held]:
    """`trained_loss`: all training rows, sorted, with their answers; storages keep the size of the rows."""
    n = s.counts.train
    rows = n * (2 if s.model.inverse else 1)
    queries = s.counts.tails.queries + (s.counts.heads.queries if s.model.inverse else 0)
    first = ledger.take("data", _ROW * n)
    ledger.flash("data", _ID * n)
    doubled = [ledger.take("data", _ROW * n), ledger.take("data", _ROW * rows)] if s.model.inverse else []
    if doubled:
        ledger.give(first, doubled.pop(0))
        first = doubled.pop()
    ledger.flash("data", _ROW * rows, _ID * rows, _ID * rows, _ROW * rows)
    distinct = ledger.take("data", _ROW * rows)
    ledger.flash("data", *[_ID * rows] * 4)
    kept = [ledger.take("data", size) for size in (_ID * rows, _ID * rows, _ID * queries, _ID * rows)]
    ledger.give(distinct, first)
    return kept


def peak_memory(shape: TracinShape, gpu: GpuFacts | None, *, expandable: bool) -> PeakMemory:
    def walk(ledger: Ledger) -> None:
        walk_tracin(ledger, shape)

    return replayed(walk, gpu, on_gpu=shape.on_gpu, expandable=expandable)
