"""Scores of all pairs of two blocks and their ranking as the allocator sees them, after
`kgops.maths.tracin.products` and `kgops.maths.tracin.results`."""

from __future__ import annotations

from kgops.workloads.memory.ledger import Held, Ledger, Scratch
from kgops.workloads.memory.products import walk_product
from kgops.workloads.tracin.chunk_sizes import TRACIN_RANKED_FIRST, TRACIN_TANGENT_GROUPS, TRACIN_TIES_AT_ONCE
from kgops.workloads.tracin.factor_memory import Side
from kgops.workloads.tracin.sizes import CONVOLUTION, TracinShape

_ID = 8


def walk_pairs(
    ledger: Ledger, s: TracinShape, scratch: Scratch, train: Side, test: Side, projected: Held | None = None
) -> Held:
    """`Engine.pair`: (tests, trains) of one checkpoint. What was `projected` is replaced by its product."""
    part = "scores"
    gram: list[Held] = []
    if s.projection and s.loss != "target":
        product = (train.groups * s.projection, s.projection * test.groups, train.groups * test.groups)
        gram.append(walk_product(ledger, part, s.gram_format, *product))
        ledger.give(*[projected] if projected else [])
    out = walk_samples(ledger, s, scratch, train, test)
    pairs = 4 * train.triples * test.triples
    summed = [ledger.take(part, pairs)] if s.both_directions else []
    weighed = ledger.take(part, pairs)
    ledger.give(out, *summed, *gram)
    return weighed


def walk_samples(ledger: Ledger, s: TracinShape, scratch: Scratch, train: Side, test: Side) -> Held:
    """`pair_scores`, of every row with every row."""
    part, names = "scores", s.names
    both, half = 4 * train.samples * test.samples, 4 * train.samples * test.groups
    groups = 4 * train.groups * test.groups
    out = ledger.take(part, both)
    if names & {"entities", "biases"}:
        _delta_products(ledger, s, both, half)
        ledger.give(_spread(ledger, s, ledger.take(part, groups), half, both))
    if names & {"project.weight", "project.bias"}:
        _map_products(ledger, s, train, test)
    across, has_shared = 4 * train.groups * test.samples, s.loss != "target"
    keeps_shared = s.of_tests.loss != "target"
    if "entities" in names:
        _add_heads(ledger, s, both, across, half // 4, *[half] * has_shared)
    if train.moves_forward:
        if names & (CONVOLUTION | {"entities", "relations"}):
            _tangents(ledger, s, scratch, train.groups, test.samples)
    else:
        if "entities" in names:
            _add_heads(ledger, s, both, half, across // 4, *(groups, half) * keeps_shared)
        if names & {"entities", "relations"}:
            _add_equal(ledger, s, train, test)
    if s.knows_all:  # samples back to the rows they stand for
        rows = ledger.take(part, 4 * train.rows * test.samples)
        ledger.give(out)
        out = ledger.take(part, 4 * train.rows * test.rows)
        ledger.give(rows)
    return out


def _delta_products(ledger: Ledger, s: TracinShape, both: int, half: int) -> None:
    part = "scores"
    same, inner = ledger.take(part, both // 4), ledger.take(part, both)
    ledger.flash(part, 0 if s.on_gpu else both)  # a CPU widens what is equal before it multiplies
    if s.knows_all:
        ledger.flash(part, both)
    elif s.loss != "target":
        ledger.flash(part, half, both)
        chosen = ledger.take(part, half)
        theirs = ledger.take(part, both)
        ledger.give(chosen)
        ledger.flash(part, both)
        ledger.give(theirs)
    ledger.give(same, inner)


def _map_products(ledger: Ledger, s: TracinShape, train: Side, test: Side) -> None:
    """The product of the feature maps, in the format that was asked for, beside that of what comes back."""
    part, both = "scores", 4 * train.samples * test.samples
    inner, pairs = s.projection or s.model.features, train.groups * test.groups
    if "project.weight" in s.names:
        product = (train.groups * inner, inner * test.groups, pairs)
        maps = walk_product(ledger, part, s.gram_format, *product, rounded=not s.projection)
    else:
        maps = ledger.take(part, 4 * pairs)
    spread = _spread(ledger, s, maps, 4 * train.samples * test.groups, both)
    ledger.flash(part, both)
    ledger.give(spread)


def _spread(ledger: Ledger, s: TracinShape, of: Held, half: int, both: int) -> Held:
    """`_both`: a product of groups for samples. Where a loss knows all tails, they are the same."""
    if s.knows_all:
        return of
    rows = ledger.take("scores", half)
    spread = ledger.take("scores", both)
    ledger.give(rows, of)
    return spread


def _add_heads(ledger: Ledger, s: TracinShape, both: int, spread: int, same: int, *shared: int) -> None:
    """Where a head vector also plays a tail's part; that some do is taken for granted: `same` says which. `shared`:
    what the shared gradient at the heads is spread out from."""
    part = "scores"
    across = ledger.take(part, spread)
    if not s.knows_all:
        product, across = across, ledger.take(part, both)
        ledger.give(product)
    before = [ledger.take(part, size) for size in shared[: -1 if s.knows_all else None]]
    weight = before
    if not s.knows_all:
        weight = [ledger.take(part, both)]
        ledger.give(*before)
    equal, some = ledger.take(part, same), ledger.take(part, 0 if s.knows_all else both // 4)
    wide = ledger.take(part, both)
    ledger.give(some)
    added = ledger.take(part, both)
    ledger.give(wide, *weight)
    ledger.give(across, added, equal)


def _add_equal(ledger: Ledger, s: TracinShape, train: Side, test: Side) -> None:
    """Only columns with a common head or relation; with few relations that is all of them."""
    columns = min(test.samples, train.samples * 4)
    both = 4 * train.samples * columns
    equal, chosen = train.groups * test.groups, train.groups * columns
    for _ in s.names & {"entities", "relations"}:
        ledger.flash("scores", equal)
        # A CPU widens what is equal before it multiplies.
        ledger.flash("scores", chosen, both, 0 if s.knows_all else both // 4, 0 if s.on_gpu else both)


def _tangents(ledger: Ledger, s: TracinShape, scratch: Scratch, groups: int, tests: int) -> None:
    c, part = s.model, "activations"
    taps, places = c.channels * c.kernel_height * c.kernel_width, c.map_height * c.map_width
    at_once = groups if s.on_gpu else min(groups, TRACIN_TANGENT_GROUPS)
    image, patches = 8 * groups * c.embedding_dim, 4 * at_once * (taps + 1) * places
    before = ledger.take(part, 4 * groups * c.embedding_dim if tests > 1 else 0)  # of the last test
    moving = ledger.take(part, image + image // 2)
    ledger.flash(part, image, image, image)
    moved = ledger.take(part, 4 * groups * c.embedding_dim)
    own = ledger.take(part, patches)
    scratch.take(part, "moving_maps", 4 * at_once * c.features)
    ledger.flash(part, 2 * patches)
    ledger.give(moving, own, moved, before)


def walk_all_scores(ledger: Ledger, s: TracinShape, tests: int) -> list[Held]:
    """`AllScores`, on the host."""
    return [] if s.on_gpu else [ledger.take("scores", 4 * tests * s.counts.train)]


def walk_ranking(
    ledger: Ledger, tests: int, columns: int, k: int, waiting: list[Held], *, again: bool, shared: bool
) -> None:
    """`TopTriples.finish` of scores that were `waiting`: the highest, then the lowest; `again` beside those found in
    other columns, `shared` where triples share their gradient."""
    ledger.phase, part, best = "ranking", "scores", tests * min(k, columns)
    ids = ledger.take(part, _ID * columns)
    joined = ledger.take(part, 4 * tests * columns)
    ledger.give(*waiting)
    _walk_highest(ledger, tests, columns, k, again=again, shared=shared)
    # Of this merge, while the lowest are looked for.
    highest = [ledger.take(part, 4 * best), ledger.take(part, _ID * best)]
    negated = ledger.take(part, 4 * tests * columns)
    _walk_highest(ledger, tests, columns, k, again=again, shared=shared)
    ledger.give(joined, *highest, negated, ids)


def _walk_highest(ledger: Ledger, tests: int, columns: int, k: int, *, again: bool, shared: bool) -> None:
    """`Ranking.add`, as if strong and weak triples came in any order."""
    if again:  # beside as many at least
        _walk_entering(ledger, tests, columns, k, columns, shared=shared)
        return
    done = min(columns, max(k, TRACIN_RANKED_FIRST))
    _walk_rank(ledger, tests, done, k, shared=shared)
    while done < columns:
        more = min(done, columns - done)
        _walk_entering(ledger, tests, more, k, done, shared=shared)
        done += more


def _walk_entering(ledger: Ledger, tests: int, columns: int, k: int, seen: int, *, shared: bool) -> None:
    """Those of so many columns that are among the strongest of all that were `seen`, beside these."""
    part, plane = "scores", tests * columns
    each = columns if shared else min(columns, -(-k * columns // seen))
    found, most = tests * each, min(columns, 2 * each)
    ledger.flash(part, plane, plane)
    held = [ledger.take(part, plane), ledger.take(part, 2 * _ID * found)]
    ledger.flash(part, *[_ID * found] * 3)
    held.append(ledger.take(part, _ID * found))  # a place in its test's row
    entering = [ledger.take(part, 4 * tests * most)]
    ledger.flash(part, 4 * found)
    entering.append(ledger.take(part, _ID * tests * most))
    ledger.flash(part, _ID * found)
    ledger.give(*held)
    _walk_rank(ledger, tests, k + most, k, shared=shared)
    ledger.give(*entering)


def _walk_rank(ledger: Ledger, tests: int, columns: int, k: int, *, shared: bool) -> None:
    """`Ranking._rank` of so many scores of each test."""
    part, numbers, best = "scores", tests * columns, tests * min(k, columns)
    candidates = [ledger.take(part, 4 * numbers), ledger.take(part, _ID * numbers)]
    if columns > k:
        chosen = [ledger.take(part, 4 * best), ledger.take(part, _ID * best)]
        ledger.flash(part, numbers, _ID * numbers)  # which tie with the last, and how many
        # Some at a time: ids decide where they tie. Triples that share a gradient do; of others one test may.
        chosen.append(ledger.take(part, _ID * best))
        torn = columns * (min(tests, TRACIN_TIES_AT_ONCE) if shared else 1)
        ledger.flash(part, *[4 * torn] * 3, *[_ID * torn] * 3)
        ledger.give(*candidates)
        candidates = chosen
    ledger.flash(part, *[_ID * best] * 3)
    ledger.give(*candidates)
