"""How many distinct queries meet in one block of the training triples: what TracIn's forward pass runs for.

Blocks are cut from the triples in the order of head, relation, tail, so the data alone decide it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

__all__ = ["Groups"]

_COUNTED = (32, 64, 128, 256, 512, 1024, 2048, 4096)  # triples of a block
_LOOKED_AT = 400_000  # triples at most, for each size: an even sample of the blocks


Triple = tuple[int, int, int]
Sides = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Groups:
    """By size of a block, the most in any, first of the tail's direction alone and then of both: distinct
    queries, the answers that all rows of the block have in training, and those of its distinct queries."""

    groups: Sides = ((), ())
    row_answers: Sides = ((), ())
    group_answers: Sides = ((), ())

    @classmethod
    def of(cls, ordered: Sequence[Triple]) -> Groups:
        tails = Counter((head, relation) for head, relation, _ in ordered)
        heads = Counter((tail, relation) for _, relation, tail in ordered)
        found = [_most(ordered, size, tails, heads) for size in _COUNTED]
        one, both, rows, rows_both, queries, queries_both = zip(*found, strict=True)
        return cls((one, both), (rows, rows_both), (queries, queries_both))

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Groups:
        """Of a table that went through JSON."""
        names = ("groups", "row_answers", "group_answers")
        return cls(*[(tuple(table[name][0]), tuple(table[name][1])) for name in names])

    def in_block(self, size: int, *, both_directions: bool) -> int:
        """At most so many queries in a block of `size` triples; exact for the sizes that were counted."""
        rows = 2 * size if both_directions else size
        return min(rows, _at_most(self.groups[both_directions], size, rows))

    def answers(self, size: int, *, both_directions: bool) -> tuple[int, int]:
        """At most so many known answers of a block's rows, and of its queries."""
        rows = _at_most(self.row_answers[both_directions], size, 0)
        return rows, _at_most(self.group_answers[both_directions], size, 0)


def _most(
    ordered: Sequence[Triple],
    size: int,
    tails: Mapping[tuple[int, int], int],
    heads: Mapping[tuple[int, int], int],
) -> tuple[int, ...]:
    skipped = max(1, len(ordered) // _LOOKED_AT)
    found: tuple[int, ...] = (0,) * 6
    for start in range(0, len(ordered), size)[::skipped]:
        block = ordered[start : start + size]
        forward = Counter((head, relation) for head, relation, _ in block)
        backward = Counter((tail, relation) for _, relation, tail in block)
        rows = sum(many * tails[query] for query, many in forward.items())
        queries = sum(tails[query] for query in forward)
        here = (
            len(forward),
            len(forward) + len(backward),
            rows,
            rows + sum(many * heads[query] for query, many in backward.items()),
            queries,
            queries + sum(heads[query] for query in backward),
        )
        found = tuple(map(max, found, here))
    return found


def _at_most(counted: Sequence[int], size: int, unknown: int) -> int:
    """Of the next larger size that was counted: a larger block has no fewer."""
    if not counted:
        return unknown
    place = bisect_left(_COUNTED, size)
    return counted[place] if place < len(counted) else ceil(counted[-1] * size / _COUNTED[-1]) + 1
