"""One pass of training triples past the test triples as the allocator sees it, after `kgops.maths.tracin.scan`,
`kgops.maths.tracin.blocks` and `kgops.maths.tracin.attribution`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kgops.workloads.graphs.block_counts import Block, Blocks, largest
from kgops.workloads.memory.ledger import Held, Ledger, Scratch, ends
from kgops.workloads.memory.products import walk_product
from kgops.workloads.tracin.chunk_sizes import TRACIN_MERGED_COLUMNS, TRACIN_TEST_BYTES, TRACIN_TESTS
from kgops.workloads.tracin.factor_memory import Side, walk_engine, walk_factors
from kgops.workloads.tracin.pair_memory import walk_all_scores, walk_pairs, walk_ranking
from kgops.workloads.tracin.sizes import TracinShape

_ID = 8
_ROW = 3 * _ID
_ALL_WALKED = 32


def walk_scan(ledger: Ledger, s: TracinShape, *, is_traced: bool = True) -> None:
    """`scan` of one tile of test triples, and what is found of them if it `is_traced`; else scores are all."""
    n, tile = s.counts.train, s.tests_of_a_tile
    union = _union(ledger, s) if is_traced else []
    rows = [ledger.take("data", _ROW * n)] if union else []
    # A sample's scores have their place beforehand, those of a tile when the first of them come.
    every = [] if is_traced else walk_all_scores(ledger, s, tile)
    engines = walk_engines(ledger, s)
    rows += [ledger.take("data", _ROW * n)] if s.on_gpu else []
    order = ledger.take("data", _ID * n)
    ledger.flash("data", *[_ID * n] * 4)
    ledger.phase = "tests"
    test = Side.of_tests(s, min(tile, tests_at_once(s)))
    scratches = [Scratch(ledger) for _ in range(s.checkpoints)]
    kept = walk_kept(ledger, s, scratches, test)
    ledger.phase = "blocks"
    if is_traced and not s.ranks:
        every = walk_all_scores(ledger, s, tile)
    ranking = Ranking(ledger, s, test)
    earlier = ledger.take("scores", 24 * (tile - test.triples) * ranking.best if s.ranks else 0)
    blocks = s.counts.groups.blocks(s.block, n, both_directions=s.both_directions)
    walk = _Blocks(ledger, s, scratches, test, ranking)
    if blocks.all:
        walk.each(blocks)
    else:
        walk.those_that_take_most(blocks)
    ranking.finish()  # what is left at the end is ranked beside the tests' factors: shares of them may follow
    ledger.give(order, *kept)
    for scratch in scratches:
        scratch.close()
    ledger.give(*engines, *rows, *ranking.found, earlier)
    if every and is_traced:
        walk_results(ledger, s)
    ledger.give(*every, *union)


def walk_engines(ledger: Ledger, s: TracinShape) -> list[Held]:
    """One for each checkpoint."""
    engines = [held for _ in range(s.checkpoints) for held in walk_engine(ledger, s)]
    kept, beside = s.score_bytes
    engines += [ledger.take("score", kept) for _ in range(s.checkpoints if kept else 0)]
    engines += [ledger.take("score", beside)] if beside else []
    return engines


def walk_results(ledger: Ledger, s: TracinShape) -> None:
    """`_each_its_own`: of each test what is kept, in the order of its strength."""
    ledger.phase = "results"
    n, best = s.counts.train, min(s.top_k or s.counts.train, s.counts.train)
    before = [ledger.take("scores", 12 * (s.tests_of_a_tile - 1) * best)]
    # Its scores, then those and its rows by row, and what sorts them.
    before += [ledger.take("scores", 4 * n), ledger.take("scores", 12 * n), ledger.take("scores", _ID * n)]
    ledger.flash("scores", 4 * n, 4 * n, _ID * n)
    ledger.flash("scores", _ID * n, 12 * best)
    ledger.give(*before)


def _union(ledger: Ledger, s: TracinShape) -> list[Held]:
    """`candidates`: the training triples that any test of a tile is scored with, on the host. Filtered, each test
    keeps its own, at most all, as numpy's; to sort them out takes four times as much."""
    n = s.counts.train
    if s.ranks or s.on_gpu:
        return []
    own = _ID * n * s.tests_of_a_tile if s.filtered else 0
    each = ledger.take("graph", own)
    ledger.flash("data", own, own, own, own)
    return [each, ledger.take("data", _ID * n)]


def tests_at_once(s: TracinShape) -> int:
    """`tests_that_fit`."""
    if s.tests_at_once:
        return s.tests_at_once
    shared = 0 if s.of_tests.loss == "target" else s.model.num_entities
    numbers = shared + s.model.features + 8 * s.model.embedding_dim
    each = 4 * numbers * s.checkpoints * s.rows_each
    return max(1, min(TRACIN_TESTS, TRACIN_TEST_BYTES // each))


class Ranking:
    """`TopTriples`: scores that wait until they are many, and what was found among those before."""

    def __init__(self, ledger: Ledger, s: TracinShape, test: Side) -> None:
        self._ledger, self._s, self._test = ledger, s, test
        self.best = min(s.top_k or s.counts.train, s.counts.train)
        self._waiting: list[Held] = []
        self.columns = 0
        self.found: list[Held] = []

    def add(self, scores: Held, columns: int) -> None:
        if not self._s.ranks:
            self._ledger.give(scores)
            return
        self._waiting.append(scores)
        self.columns += columns
        if self.columns >= TRACIN_MERGED_COLUMNS:
            # The block that made it enough is still in the hands of who added it.
            held = self._waiting.pop()
            again = self._ledger.take("scores", held[1])
            self._waiting.append(again)
            self.finish()
            self._ledger.give(held)

    def wait(self, columns: int) -> None:
        """So many more scores of blocks that are not walked through."""
        if self._s.ranks and columns:
            self._waiting += self.pieces(columns)
            self.columns += columns

    def pieces(self, columns: int) -> list[Held]:
        """Scores of as many blocks."""
        block, each = self._s.block, 4 * self._test.triples
        whole = self._ledger.take_equal("scores", each * block, columns // block)
        return [*whole, self._ledger.take("scores", each * (columns % block))]

    def finish(self) -> None:
        if not self.columns:
            return
        tests, columns, best = self._test.triples, self.columns, self.best
        again = bool(self.found)
        shared = self._s.knows_all
        walk_ranking(self._ledger, tests, columns, best, self._waiting, again=again, shared=shared)
        if not again:
            self.found = [self._ledger.take("scores", size * tests * best) for size in (4, _ID) * 2]
        self._waiting, self.columns = [], 0
        self._ledger.phase = "blocks"


class _Blocks:
    """Blocks of training triples, each at every checkpoint."""

    def __init__(
        self, ledger: Ledger, s: TracinShape, scratches: list[Scratch], test: Side, ranking: Ranking
    ) -> None:
        self._ledger, self._s, self._scratches = ledger, s, scratches
        self._test, self._ranking = test, ranking
        self._walked: list[tuple[Side, int, int]] = []
        self._number = 0  # of blocks at checkpoints

    def each(self, blocks: Blocks) -> None:
        """All blocks in their order."""
        self._number = len(blocks.found) * len(self._scratches)
        for block in blocks.found:
            side = Side.of_block(self._s, block, self._test)
            if (forward := self._perhaps_forward(side, block, blocks.share)) is not None:
                self._ledger.give(self._summed(forward))
            if self._adds_nothing(side):
                self._ranking.wait(side.triples)
            else:
                self._walk(side)

    def _perhaps_forward(self, side: Side, block: Block, share: float) -> Side | None:
        """The way it may be gone with fewer queries than the most there can be, which is another."""
        limit, about = (side.rows - 1) // max(self._test.samples, 1), share * block.groups
        fewest = about - 3 * math.sqrt(max(side.rows - about, 0))  # queries that come again come by chance
        if self._s.knows_all or side.moves_forward or share == 1 or fewest > limit:
            return None
        return Side.of_block(self._s, block._replace(groups=limit), self._test)

    def those_that_take_most(self, blocks: Blocks) -> None:
        """Where scores of others wait, and buffers are as large as blocks have made them; last the last one,
        which may be smaller."""
        s, n, test = self._s, self._s.counts.train, self._test
        waiting = -(-TRACIN_MERGED_COLUMNS // s.block) * s.block
        sides = [Side.of_block(s, block, test) for block in sorted({*self._chosen(blocks)})]
        for side in sides:
            self._walk_alone(side, waiting)
        self._ranking.wait(waiting)
        self._ranking.finish()
        for side in sides:
            self._walk_alone(side, waiting)
        if n >= 2 * waiting:  # beside what was found, more are ranked than the first time
            self._ranking.wait(waiting)
            self._ranking.finish()
        self._walk_alone(Side.of_block(s, blocks.found[-1], test), n % waiting or waiting)
        self._ranking.wait(n % waiting)

    def _chosen(self, blocks: Blocks) -> Iterator[Block]:
        s, test = self._s, self._test
        limit = (s.block * s.rows_each - 1) // max(test.samples, 1)
        if not s.knows_all and (forward := blocks.most_within(limit)) is not None:
            yield forward
        pulled = [block for block in blocks.found[:-1] if s.knows_all or block.groups > limit]
        yield from largest(pulled) if pulled else ()

    def _walk_alone(self, side: Side, columns: int) -> None:
        waiting = self._ranking.pieces(max(0, columns - self._s.block)) if self._s.ranks else []
        self._ledger.give(self._summed(side))
        self._ledger.give(*waiting)

    def _walk(self, side: Side) -> None:
        self._ranking.add(self._summed(side), side.triples)
        self._walked.append((side, self._ranking.columns, self._grown()))

    def _summed(self, side: Side) -> Held:
        """A block at every checkpoint, and the sum of its scores."""
        ledger, summed = self._ledger, None
        # Where relations are doubled its rows are others than the triples it was cut as.
        cut = ledger.take("data", _ROW * side.triples if self._s.model.inverse else 0)
        for scratch in ends(self._scratches):
            made = walk_block(ledger, self._s, scratch, side, self._test)
            scores = walk_pairs(ledger, self._s, scratch, side, self._test)
            ledger.give(*made)
            if summed is None:
                summed = scores
            else:
                ledger.give(scores)
        ledger.give(cut)
        assert summed is not None
        return summed

    def _adds_nothing(self, side: Side) -> bool:
        """Whether one no smaller was walked through when no less was alive. Where segments are counted, a few
        blocks are all walked through: what waits lies between what comes and goes."""
        if self._ledger.events is not None and self._number <= _ALL_WALKED:
            return False
        waiting, grown = self._ranking.columns, self._grown()
        return any(
            grown == then and waiting + side.triples <= columns and _holds(walked, side)
            for walked, columns, then in self._walked
        )

    def _grown(self) -> int:
        return sum(scratch.size for scratch in self._scratches) + len(self._ranking.found)


def _holds(a: Side, b: Side) -> bool:
    return a.moves_forward == b.moves_forward and all(
        getattr(a, name) >= getattr(b, name)
        for name in ("triples", "rows", "groups", "samples", "row_answers", "group_answers")
    )


def walk_block(ledger: Ledger, s: TracinShape, scratch: Scratch, side: Side, test: Side) -> list[Held]:
    """`Engine.make`: a block's factors, to multiply with those of the tests."""
    against = s.projection or (0 if s.of_tests.loss == "target" else test.groups)
    places = test.samples + test.groups
    made = walk_factors(ledger, s, scratch, side, keep=False, against=against, places=places)
    if s.projection:
        made.append(ledger.take("factors", 4 * s.projection * side.groups))
    return made


def walk_kept(ledger: Ledger, s: TracinShape, scratches: list[Scratch], test: Side) -> list[Held]:
    """`Engine.keep` of every checkpoint."""
    each: list[list[Held]] = []
    left = len(scratches)
    for scratch in ends(scratches):
        while each and scratch is scratches[-1] and left > 1:  # not walked through: they keep the same
            for part in {part: None for part, _, _ in each[0]}:
                each.append(ledger.take_together(part, [size for name, size, _ in each[0] if name == part]))
            left -= 1
        each.append(_walk_keeping(ledger, s.of_tests, scratch, test))
        ledger.flash("score", s.curvature_bytes)
        left -= 1
    return [held for one in each for held in one]


def _walk_keeping(ledger: Ledger, s: TracinShape, scratch: Scratch, test: Side) -> list[Held]:
    """The factors, and copies of the two large ones where products take them rounded."""
    kept = walk_factors(ledger, s, scratch, test, keep=True)
    deltas = s.model.num_entities * test.groups
    low: list[Held] = []
    if s.gram_format.is_low and s.loss != "target":
        low.append(ledger.take("factors", s.gram * deltas))
    places = 2 * _ID * (test.samples + test.groups)
    ledger.flash("factors", places, places)
    kept.append(ledger.take("factors", places))
    if not s.projection:
        if s.gram_format.is_low:
            kept.append(ledger.take("factors", s.gram * s.model.features * test.groups))
        return kept + low
    kept.append(ledger.take("factors", 4 * s.projection * test.groups))
    if s.loss != "target":
        wide = s.projection * s.model.num_entities
        kept.append(walk_product(ledger, "factors", s.gram_format, deltas, wide, s.projection * test.groups))
    ledger.give(*low)
    return kept
