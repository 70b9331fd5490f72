"""TracIn on ConvE as the allocator sees it: checkpoints, the factors of the test triples, blocks of training.

Line by line after `kgops.tracin`: `points`, `loss`, `scan`; `factor_memory` and `pair_memory` have the rest.
"""

from __future__ import annotations

from kgops.jobs import sizes
from kgops.plans.factor_memory import Side, walk_factors
from kgops.plans.ledger import Held, Ledger, Scratch
from kgops.plans.pair_memory import walk_all_scores, walk_pairs, walk_ranking
from kgops.plans.shapes import TracinShape
from kgops.plans.weights import buffer_bytes, weight_bytes, weight_sizes

__all__ = ["walk_tracin"]

_ID = 8
_ROW = 3 * _ID


def walk_tracin(ledger: Ledger, s: TracinShape) -> None:
    """From the checkpoints to the strongest triples of the last test."""
    ledger.phase = "loading"
    triples = [ledger.take("data", _ROW * s.counts.train)]
    if not s.on_card:
        triples += [ledger.take("data", _ROW * n) for n in (s.counts.valid, s.counts.test)]
    models = [_load(ledger, s) for _ in range(s.checkpoints)]
    known = _known_tails(ledger, s) if s.loss.startswith("kvsall") else []
    tile = s.tests_of_a_tile
    union = [] if s.ranks else _union(ledger, s)
    largest = max(weight_sizes(s.model)) // 4
    ledger.flash("checkpoint", 4 * largest, largest, largest, largest)  # are all of them finite?
    test = Side.of_tests(s, min(tile, _tests_at_once(s)))
    _scan(ledger, s, test, tile)
    ledger.give(*triples, *known, *union, *[held for model in models for held in model])


def _load(ledger: Ledger, s: TracinShape) -> list[Held]:
    """`load_point`: what was read lives until it has been copied into the model."""
    saved = ledger.take("checkpoint", weight_bytes(s.model) + buffer_bytes(s.model))
    model = [ledger.take("weights", size) for size in weight_sizes(s.model)]
    model.append(ledger.take("weights", buffer_bytes(s.model)))
    ledger.give(saved)
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


def _union(ledger: Ledger, s: TracinShape) -> list[Held]:
    """The training triples that any test of a tile is scored with: all, unless they are filtered."""
    n = s.counts.train
    return [ledger.take("data", _ID * n), ledger.take("data", _ID * n), ledger.take("data", _ROW * n)]


def _tests_at_once(s: TracinShape) -> int:
    """`tests_that_fit`."""
    numbers = s.model.num_entities + s.model.features + 8 * s.model.embedding_dim
    each = 4 * numbers * s.checkpoints * (2 if s.both_directions else 1)
    return max(1, min(sizes.TRACIN_TESTS, sizes.TRACIN_TEST_BYTES // each))


def _scan(ledger: Ledger, s: TracinShape, test: Side, tile: int) -> None:
    ledger.phase = "tests"
    n = s.counts.train
    scratches = [Scratch(ledger) for _ in range(s.checkpoints)]
    kept = [_keep(ledger, s, scratch, test) for scratch in scratches]
    ledger.phase = "blocks"
    order = ledger.take("data", _ID * n)
    ledger.flash("data", *[_ID * n] * 4)
    trains = Side.of_training(s, test)
    best = min(s.top_k or n, n)
    every = [] if s.ranks else walk_all_scores(ledger, s, tile)
    earlier = [ledger.take("scores", 24 * (tile - test.triples) * best)] if s.ranks else []
    full = -(-sizes.TRACIN_MERGED_COLUMNS // s.block) * s.block
    rest = n % full if s.ranks else n
    if n >= full and s.ranks:
        _walk_blocks(ledger, s, scratches, trains, test, full)
        # The block that made it enough is still in the hands of who added it.
        last = ledger.take("scores", 4 * test.triples * s.block)
        walk_ranking(ledger, test.triples, full, best, again=n >= 2 * full)
        ledger.give(last)
    found = [ledger.take("scores", 12 * test.triples * best) for _ in (1, 2) if s.ranks and n >= full]
    if rest:
        _walk_blocks(ledger, s, scratches, trains, test, rest)
    ledger.give(order, *[held for one in kept for held in one])
    if rest and s.ranks:  # what is left at the end is ranked when the tests' factors are gone
        walk_ranking(ledger, test.triples, rest, best, again=n >= full)
    ledger.give(*earlier, *found)
    for scratch in scratches:
        scratch.close()
    if every:
        ledger.phase = "results"  # each test's own, in the order of their strength
        ledger.flash("scores", 12 * tile * best, *[_ID * n] * 5)
    ledger.give(*every)


def _walk_blocks(
    ledger: Ledger, s: TracinShape, scratches: list[Scratch], trains: list[Side], test: Side, columns: int
) -> None:
    """Blocks whose scores wait until they are so many; later ones find the buffers of those before."""
    ledger.phase = "blocks"
    waiting = ledger.take("scores", 4 * test.triples * max(0, columns - s.block) if s.ranks else 0)
    for side in trains:
        _walk_block(ledger, s, scratches, side, test)
    ledger.give(waiting)


def _walk_block(ledger: Ledger, s: TracinShape, scratches: list[Scratch], train: Side, test: Side) -> None:
    """A block at every checkpoint, and the sum of its scores."""
    summed: Held | None = None
    for scratch in scratches:
        made = walk_factors(ledger, s, scratch, train, test)
        scores = walk_pairs(ledger, s, scratch, train, test)
        ledger.give(*made)
        if summed is None:
            summed = scores
        else:
            ledger.give(scores)
    if summed is not None:
        ledger.give(summed)


def _keep(ledger: Ledger, s: TracinShape, scratch: Scratch, test: Side) -> list[Held]:
    """`Engine.keep`: the factors, and copies of the two large ones where products take them rounded."""
    kept = walk_factors(ledger, s, scratch, test, None)
    if s.gram != 4 and s.loss != "target":
        kept.append(ledger.take("factors", s.gram * s.model.num_entities * test.groups))
    if s.gram != 4:
        kept.append(ledger.take("factors", s.gram * s.model.features * test.groups))
    places = 2 * _ID * (test.samples + test.groups)
    ledger.flash("factors", places, places)
    kept.append(ledger.take("factors", places))
    return kept
