"""Distinct queries in each block of training triples, for which TracIn runs its forward pass.

Blocks are cut from triples sorted by head, relation, tail, so only the data decide the counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_COUNTED = (32, 64, 128, 256, 512, 1024, 2048, 4096)  # triples of a block
_LOOKED_AT = 400_000  # triples at most, for each size: an even sample of the blocks
_ALL_KEPT = 32  # blocks; of more, only those are kept that may take most
_LEVELS = 8  # sizes of blocks that are kept in addition to the largest
_WEIGHTS = (0.0, 1 / 64, 1 / 8, 1.0, 64.0)  # of an answer beside a query: memory is some mix of the two


Triple = tuple[int, int, int]


class Block(NamedTuple):
    """The `place`th block: its triples, and the distinct queries among its rows (`groups`). `row_answers` and
    `group_answers` are the answers that training has to all of its rows and to its queries."""

    place: int
    triples: int
    groups: int
    row_answers: int
    group_answers: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of one size, in their order: `all` of them, or those that may take most. The last one may have fewer
    triples than the others. `share`: their size as a share of the counted blocks' size. If it is less than one, the
    numbers of queries are upper bounds, of which about this share is real."""

    found: tuple[Block, ...]
    all: bool
    share: float = 1.0

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Blocks:
        if len(blocks) <= _ALL_KEPT:
            return cls(tuple(blocks), all=True)
        by_groups = sorted(blocks[:-1], key=lambda block: block.groups)
        levels = [by_groups[i * (len(by_groups) - 1) // (_LEVELS - 1)] for i in range(_LEVELS)]
        return cls(tuple(sorted({*largest(blocks), *levels, blocks[-1]})), all=False)

    def most_within(self, limit: int) -> Block | None:
        """The block of most queries that has no more than `limit`; where not all are known, as many as there
        may be."""
        within = [block for block in self.found if block.groups <= limit]
        if not within:
            return None
        block = max(within, key=lambda block: block.groups)
        above = min((block.groups - 1 for block in self.found if block.groups > limit), default=block.groups)
        return block if self.all else block._replace(groups=min(limit, above))


def largest(blocks: Sequence[Block]) -> list[Block]:
    """Blocks of most queries and answers, for several weights of the two."""
    weighed = [
        max(blocks, key=lambda b: b.groups + weight * (b.row_answers + b.group_answers))
        for weight in _WEIGHTS
    ]
    return sorted({*weighed})


@dataclass(frozen=True, slots=True)
class Groups:
    """By size of a block, first of the tail's direction and then of both; empty where not counted."""

    counted: tuple[tuple[Blocks, ...], tuple[Blocks, ...]] = ((), ())

    @classmethod
    def of(cls, ordered: Sequence[Triple]) -> Groups:
        tails = Counter((head, relation) for head, relation, _ in ordered)
        heads = Counter((tail, relation) for _, relation, tail in ordered)
        by_size = [_counted(ordered, size, tails, heads) for size in _COUNTED]
        one, both = (tuple(Blocks.of([pair[side] for pair in pairs]) for pairs in by_size) for side in (0, 1))
        return cls((one, both))

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Groups:
        """Of a table that went through JSON."""
        one, both = (
            tuple(Blocks(tuple(Block(*block) for block in size["found"]), size["all"]) for size in side)
            for side in table["counted"]
        )
        return cls((one, both))

    def blocks(self, size: int, train: int, *, both_directions: bool) -> Blocks:
        """Those that `train` triples make, of `size` each: exact for the sizes that were counted. Of others
        there are at most so many queries and answers; where nothing was counted, a query for every row."""
        counted, rows = self.counted[both_directions], 2 if both_directions else 1
        number = -(-train // size)
        rest = train - (number - 1) * size
        if not counted:
            ends = {Block(0, min(size, train), rows * min(size, train), 0, 0)}
            return Blocks(tuple(sorted({*ends, Block(number - 1, rest, rows * rest, 0, 0)})), all=False)
        at = bisect_left(_COUNTED, size)
        known = counted[min(at, len(counted) - 1)]
        if at < len(counted) and size == _COUNTED[at]:
            return known
        # A block of the next larger size holds most of this one; of larger sizes, one is made of several.
        times = -(-size // _COUNTED[-1])
        estimated = [
            Block(i, size, times * b.groups, times * b.row_answers, times * b.group_answers)
            for i, b in enumerate(known.found[: number - 1])
        ]
        last = known.found[-1]
        # Queries come together the more, the longer a block is.
        groups = min(rows * rest, -(-last.groups * max(rest, last.triples) // last.triples))
        estimated.append(
            Block(number - 1, rest, groups, times * last.row_answers, times * last.group_answers)
        )
        of = _COUNTED[at] if at < len(_COUNTED) else times * _COUNTED[-1]
        share = size / of if number > 1 else 1.0  # all of it is one block of the larger size, too
        return Blocks(tuple(estimated), all=known.all and len(estimated) == number, share=share)

    def in_block(self, size: int, *, both_directions: bool) -> int:
        """At most so many queries in a block of `size` triples; exact for the sizes that were counted."""
        rows, counted = 2 * size if both_directions else size, self.counted[both_directions]
        if not counted:
            return rows
        known = counted[min(bisect_left(_COUNTED, size), len(counted) - 1)]
        times = -(-size // _COUNTED[-1])
        return min(rows, times * max(block.groups for block in known.found))


def _counted(
    ordered: Sequence[Triple],
    size: int,
    tails: Mapping[tuple[int, int], int],
    heads: Mapping[tuple[int, int], int],
) -> list[tuple[Block, Block]]:
    """Every block that is looked at, in the tail's direction only and in both."""
    starts = range(0, len(ordered), size)
    looked_at = sorted({*starts[:: max(1, len(ordered) // _LOOKED_AT)], starts[-1]})
    blocks = []
    for start in looked_at:
        block = ordered[start : start + size]
        forward = Counter((head, relation) for head, relation, _ in block)
        backward = Counter((tail, relation) for _, relation, tail in block)
        rows = sum(many * tails[query] for query, many in forward.items())
        queries = sum(tails[query] for query in forward)
        one = Block(start // size, len(block), len(forward), rows, queries)
        rows += sum(many * heads[query] for query, many in backward.items())
        queries += sum(heads[query] for query in backward)
        blocks.append((one, Block(start // size, len(block), len(forward) + len(backward), rows, queries)))
    return blocks
