"""Sizes of one block of triples: rows, distinct queries and known answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kgops.jobs.cpu_products import rounded_rows
from kgops.workloads.graphs.block_counts import Block
from kgops.workloads.tracin.sizes import TracinShape


@dataclass(frozen=True, slots=True)
class Side:
    """One block: `rows` of `triples` in the directions that count, the distinct queries (`groups`) and tails of
    queries (`samples`) among them, and the known answers of all rows and of all groups."""

    triples: int
    rows: int
    groups: int
    samples: int
    row_answers: int = 0
    group_answers: int = 0
    moves_forward: bool = False  # by tangents, not back through the convolution

    @classmethod
    def of_tests(cls, s: TracinShape, tests: int) -> Side:
        rows = tests * s.rows_each
        if s.knows_all:
            sides = (s.counts.tails, s.counts.heads) if s.both_directions else (s.counts.tails,)
            answers = round(sum(tests * side.squares / max(side.answers, 1) for side in sides))
            return cls(tests, rows, rows, rows, answers, answers)  # what training never saw stands alone
        return cls(tests, rows, _distinct(s, tests), rows)

    @classmethod
    def of_block(cls, s: TracinShape, block: Block, tests: Side | None) -> Side:
        """`tests`: those it is multiplied with; few enough, and it moves forward."""
        rows = block.triples * s.rows_each
        groups = min(block.groups, rows)
        if not s.on_gpu and (s.knows_all or groups < rows):
            groups = rounded_rows(groups)
        if s.knows_all:
            return cls(block.triples, rows, groups, groups, block.row_answers, block.group_answers)
        forward = tests is not None and groups * tests.samples < rows
        return cls(block.triples, rows, groups, rows, moves_forward=forward)


def _distinct(s: TracinShape, tests: int) -> int:
    """Queries among so many test triples; all differ where nobody counted."""
    sides = s.counts.test_queries if s.both_directions else s.counts.test_queries[:1]
    return sum(min(tests, side) if side and tests == s.counts.test else tests for side in sides)


def sides_of(s: TracinShape, test: Side | None) -> list[Side]:
    """The blocks of training triples that may take most. Of those with few queries, which go by tangents, the largest
    that may be among blocks whose queries nobody counted."""
    blocks = s.counts.groups.blocks(s.block, s.counts.train, both_directions=s.both_directions)
    sides = [Side.of_block(s, block, test) for block in blocks.found]
    if test is None or s.knows_all:
        return sides
    limit = (s.block * s.rows_each - 1) // max(test.samples, 1)
    if blocks.share < 1:
        about = blocks.share * max(block.groups for block in blocks.found)
        rows = s.block * s.rows_each
        few = limit and about - 3 * math.sqrt(max(rows - about, 0)) <= limit  # queries come again by chance
        forward = Block(0, s.block, limit, 0, 0) if few else None
    else:
        forward = None if blocks.all else blocks.most_within(limit)
    return sides if forward is None else [*sides, Side.of_block(s, forward, test)]
