"""Memory of indexes and of neighbourhoods."""

from __future__ import annotations

from kgops.planning.factor_memory import Side, small_each, walk_factors
from kgops.planning.ledger import Held, Ledger, Scratch, ends
from kgops.planning.pair_memory import walk_pairs
from kgops.planning.product_memory import EXACT, walk_product
from kgops.planning.scan_memory import Ranking, tests_at_once, walk_engines, walk_kept, walk_results
from kgops.planning.tracin_sizes import TracinShape

__all__ = [
    "index_bytes",
    "mapped_bytes",
    "walk_building",
    "walk_graph",
    "walk_neighbourhood",
    "walk_query",
]

_ID_BYTES = 8


def walk_neighbourhood(ledger: Ledger, s: TracinShape) -> list[Held]:
    """The graph, which stays, and what a tile of tests is left with: each at most all triples.

    Which edges lie on short paths is searched in trees whose number only the graph decides: that is not counted
    beyond the arrays that every search begins with.
    """
    n, entities = s.counts.train, s.model.num_entities
    if s.on_gpu:
        return []
    held = walk_graph(ledger, n, n, entities)
    part = "graph"
    distances = [ledger.take(part, _ID_BYTES * entities) for _ in (1, 2)]
    rows = ledger.take(part, _ID_BYTES * n)
    ledger.flash(part, *[_ID_BYTES * n] * 8)  # both ends of each row, smaller and larger, the distinct edges
    ledger.give(*distances, rows)
    return held


def walk_graph(ledger: Ledger, triples: int, edges: int, entities: int) -> list[Held]:
    """`Neighbourhood.__init__` with so many distinct edges; what it keeps."""
    ledger.phase, part = "neighbourhood", "graph"
    ends = ledger.take(part, 2 * _ID_BYTES * triples)
    ordered = ledger.take(part, 2 * _ID_BYTES * triples)
    ledger.flash(
        part, _ID_BYTES * triples, triples, _ID_BYTES * edges, _ID_BYTES * edges
    )  # as one number, which are no loops, sorted
    distinct = ledger.take(part, _ID_BYTES * edges)
    both = ledger.take(part, 2 * _ID_BYTES * edges)
    arcs = ledger.take(part, 4 * _ID_BYTES * edges)
    order = ledger.take(part, 2 * _ID_BYTES * edges)
    counts = [ledger.take(part, _ID_BYTES * entities), ledger.take(part, _ID_BYTES * entities)]
    ledger.flash(part, _ID_BYTES * entities, _ID_BYTES * entities)
    neighbours = ledger.take(part, 2 * _ID_BYTES * edges)
    degree = ledger.take(part, _ID_BYTES * entities)
    ledger.flash(part, triples, _ID_BYTES * entities, _ID_BYTES * entities)
    starts = counts.pop()
    ledger.give(ordered, distinct, both, arcs, order, *counts)
    return [ends, starts, neighbours, degree]


_ROW = 3 * _ID_BYTES


def walk_building(ledger: Ledger, s: TracinShape) -> None:
    """`build_index`: the blocks of one checkpoint after the other, and what is written of each."""
    engines = walk_engines(ledger, s)
    ledger.phase = "blocks"
    n = s.counts.train
    # All blocks are cut before the first is computed.
    rows = ledger.take("data", _ROW * n if s.on_gpu else 0)
    blocks = [ledger.take("data", _ID_BYTES * n)]
    ledger.flash("data", *[_ID_BYTES * n] * 4)
    blocks.append(ledger.take("data", _ROW * n))
    ledger.give(rows)
    known = s.counts.groups.blocks(s.block, n, both_directions=s.both_directions)
    scratches = [Scratch(ledger) for _ in range(s.checkpoints)]
    body: list[Held] = []
    for scratch in ends(scratches):
        for block in known.found:
            side = Side.of_block(s, block, None, rounded=False)
            made = _walk_made(ledger, s, scratch, side)
            # The body before is written, and stands until this one is made; on a GPU only its copy does.
            ledger.give(*body)
            body = made
            if s.on_gpu:
                ledger.give(*body)
                body = []
    ledger.give(*body, *blocks, *engines)
    for scratch in scratches:
        scratch.close()


def _walk_made(ledger: Ledger, s: TracinShape, scratch: Scratch, side: Side) -> list[Held]:
    """`_to_file`: what products will need of a block; with copies of what is not in one piece."""
    against = s.projection or 0
    made = walk_factors(ledger, s, scratch, side, keep=not s.projection, against=against)
    if s.projection:
        made.held.append(ledger.take("factors", 4 * s.projection * side.groups))
    copied = ledger.take("factors", 2 * _ID_BYTES * side.groups + _ID_BYTES * side.samples)
    ledger.give(*made.passing)
    return [*made.held, copied]


def walk_query(ledger: Ledger, s: TracinShape) -> None:
    """`Index.scan` of one tile of test triples: files are mapped, on a GPU copied there."""
    engines = walk_engines(ledger, s)
    ledger.phase = "tests"
    tile = s.tests_of_a_tile
    test = Side.of_tests(s, min(tile, tests_at_once(s)))
    scratches = [Scratch(ledger) for _ in range(s.checkpoints)]
    kept = walk_kept(ledger, s, scratches, test)
    ledger.phase = "blocks"
    n = s.counts.train
    every = [] if s.ranks or s.on_gpu else [ledger.take("scores", 4 * tile * n)]
    union = [] if s.ranks or s.on_gpu else [ledger.take("data", (_ID_BYTES + _ROW) * n)]
    ranking = Ranking(ledger, s, test)
    earlier = ledger.take("scores", 24 * (tile - test.triples) * ranking.best if s.ranks else 0)
    last = 0
    for block in s.counts.groups.blocks(s.block, n, both_directions=s.both_directions).found:
        side = Side.of_block(s, block, None, rounded=False)
        ranking.add(_walk_block(ledger, s, scratches, side, test), side.triples)
        last = side.triples
    ledger.give(*kept)
    in_hand = ledger.take("scores", 4 * test.triples * last)  # of the last block, which the loop still names
    ranking.finish()
    ledger.give(in_hand)
    for scratch in scratches:
        scratch.close()
    ledger.give(*engines, *ranking.found, earlier)
    if every:
        walk_results(ledger, s)
    ledger.give(*every, *union)


def mapped_bytes(s: TracinShape) -> int:
    """Of the file that a process on a CPU has resident: the one it reads."""
    if not s.from_index or s.on_gpu:
        return 0
    blocks = s.counts.groups.blocks(s.block, s.counts.train, both_directions=s.both_directions).found
    return max(_stored_bytes(s, Side.of_block(s, block, None, rounded=False)) for block in blocks)


def _walk_block(ledger: Ledger, s: TracinShape, scratches: list[Scratch], side: Side, test: Side) -> Held:
    """`Index._block`: a block at every checkpoint, and the sum of its scores."""
    summed: Held | None = None
    for scratch in ends(scratches):
        # Copied to a GPU. A host maps it, and lets go of it when it wants to: that is no memory which could run out.
        stored = [ledger.take("index", size) for size in _stored_sizes(s, side)] if s.on_gpu else []
        made = _walk_read(ledger, s, side, test)
        projected = made.pop() if s.projection and made else None  # until it was multiplied
        scores = walk_pairs(ledger, s, scratch, side, test, projected)
        ledger.give(*stored, *made)
        if summed is None:
            summed = scores
        else:
            ledger.give(scores)
    assert summed is not None
    return summed


def index_bytes(s: TracinShape) -> int:
    """Of all files of an index; at most, where not every block was counted."""
    n = s.counts.train
    known = s.counts.groups.blocks(s.block, n, both_directions=s.both_directions)
    stored = [_stored_bytes(s, Side.of_block(s, block, None, rounded=False)) for block in known.found]
    number = -(-n // s.block)
    return s.checkpoints * (sum(stored) if known.all else round(number * sum(stored) / len(stored)))


def _stored_bytes(s: TracinShape, side: Side) -> int:
    return sum(_stored_sizes(s, side))


def _stored_sizes(s: TracinShape, side: Side) -> list[int]:
    """Of the tensors in one file, in the order of `_to_file`."""
    c, vector, own = s.model, 4 * s.model.embedding_dim, side.samples
    norms = sum(name in s.names for name in ("output_norm.weight", "output_norm.bias"))
    inputs = sum(name in s.names for name in ("entities", "relations"))
    sizes = [*[_ID_BYTES * side.groups] * 2, _ID_BYTES * own, _ID_BYTES * own, 4 * own]
    sizes += [_ID_BYTES * side.rows if s.knows_all else 0, vector * own, norms * vector * own]
    sizes += [small_each(s) * own, *[vector * own] * inputs]
    sizes += [vector * side.groups, 4 * (s.projection or c.features) * side.groups]
    if s.loss != "target":
        sizes += [4 * (s.projection or c.num_entities) * side.groups]
        sizes += [8 * side.groups if s.loss.endswith("-ce") else 0]
        many = side.group_answers or min(side.groups, side.rows)
        sizes += [_ID_BYTES * many, _ID_BYTES * many, 4 * many]
    return [*sizes, _ID_BYTES * side.triples]


def _walk_read(ledger: Ledger, s: TracinShape, side: Side, test: Side) -> list[Held]:
    """`_from_file`: the gradient at the scores, at the entities of the tests alone."""
    if s.loss == "target":
        return []
    part, c = "factors", s.model
    wanted = test.samples + test.groups
    ids = [ledger.take(part, _ID_BYTES * wanted)]
    vectors = ledger.take(part, 4 * wanted * c.embedding_dim)
    ledger.flash(part, 4 * wanted)
    at = ledger.take(part, 4 * side.groups * wanted)
    ledger.give(vectors)
    many = side.group_answers or side.groups
    ledger.flash(part, *[_ID_BYTES * wanted] * 3)
    _walk_positives(ledger, round(many * wanted / c.num_entities))
    held = [*ids, at]
    if s.projection:
        return [*held, ledger.take(part, 4 * side.groups * s.projection)]
    delta = c.num_entities
    if s.gram_format.is_low:
        wide = ledger.take(part, 4 * delta * test.groups)
        gram = walk_product(ledger, part, EXACT, 0, 0, side.groups * test.groups)
        ledger.give(wide)
    else:
        gram = walk_product(ledger, part, EXACT, 0, 0, side.groups * test.groups)
    copied = ledger.take(part, 4 * side.groups * test.groups)
    ledger.give(gram)
    return [*held, copied]


def _walk_positives(ledger: Ledger, pairs: int) -> None:
    """Of `gradient_at`: positive entities that are wanted, each as often as it is, sorted."""
    part, each = "factors", _ID_BYTES * pairs
    ledger.flash(part, *[each] * 4)
    held = [ledger.take(part, each) for _ in range(3)]  # which of the positives, where, of which group
    ledger.flash(part, *[each] * 3, 2 * each)
    held += [ledger.take(part, each) for _ in range(2)]
    ledger.flash(part, each, each // 2, each // 2)
    ledger.give(*held)
