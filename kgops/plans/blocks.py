"""How many distinct queries meet in one block of the training triples: what TracIn's forward pass runs for.

Blocks are cut from the triples in the order of head, relation, tail, so the data alone decide it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
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
    """By size of a block, first of the tail's direction alone and then of both, the most in any: distinct
    queries, the answers that its rows have in training, and those of its queries. `fewest` has the queries of
    the block with fewest, `last` those of the last one, which is smaller than the others."""

    groups: Sides = ((), ())
    fewest: Sides = ((), ())
    last: Sides = ((), ())
    row_answers: Sides = ((), ())
    group_answers: Sides = ((), ())

    @classmethod
    def of(cls, ordered: Sequence[Triple]) -> Groups:
        tails = Counter((head, relation) for head, relation, _ in ordered)
        heads = Counter((tail, relation) for _, relation, tail in ordered)
        found = [_counted(ordered, size, tails, heads) for size in _COUNTED]
        most = [tuple(max(column) for column in zip(*blocks, strict=True)) for blocks in found]
        # A last block is smaller than the others, and says nothing of them.
        least = [tuple(min(c) for c in zip(*(blocks[:-1] or blocks), strict=True)) for blocks in found]
        one, both, rows, rows_both, queries, queries_both = zip(*most, strict=True)
        return cls(
            (one, both),
            (tuple(few[0] for few in least), tuple(few[1] for few in least)),
            (tuple(blocks[-1][0] for blocks in found), tuple(blocks[-1][1] for blocks in found)),
            (rows, rows_both),
            (queries, queries_both),
        )

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Groups:
        """Of a table that went through JSON."""
        names = ("groups", "fewest", "last", "row_answers", "group_answers")
        return cls(*[(tuple(table[name][0]), tuple(table[name][1])) for name in names])

    def in_block(self, size: int, *, both_directions: bool) -> int:
        """At most so many queries in a block of `size` triples; exact for the sizes that were counted."""
        rows = 2 * size if both_directions else size
        return min(rows, _at_most(self.groups[both_directions], size, rows))

    def fewest_in_block(self, size: int, *, both_directions: bool) -> int:
        """At least so many queries in every block of `size` triples."""
        counted = self.fewest[both_directions]
        place = bisect_right(_COUNTED, size) - 1
        return counted[place] if counted and place >= 0 else 1

    def in_last_block(self, size: int, *, both_directions: bool) -> int | None:
        """Queries of the last block of `size` triples; None where that size was not counted."""
        counted = self.last[both_directions]
        return counted[_COUNTED.index(size)] if counted and size in _COUNTED else None

    def answers(self, size: int, *, both_directions: bool) -> tuple[int, int]:
        """At most so many known answers of a block's rows, and of its queries."""
        rows = _at_most(self.row_answers[both_directions], size, 0)
        return rows, _at_most(self.group_answers[both_directions], size, 0)


def _counted(
    ordered: Sequence[Triple],
    size: int,
    tails: Mapping[tuple[int, int], int],
    heads: Mapping[tuple[int, int], int],
) -> list[tuple[int, ...]]:
    """Of every block that is looked at, what `Groups` has the most of."""
    skipped = max(1, len(ordered) // _LOOKED_AT)
    found: list[tuple[int, ...]] = []
    for start in range(0, len(ordered), size)[::skipped]:
        block = ordered[start : start + size]
        forward = Counter((head, relation) for head, relation, _ in block)
        backward = Counter((tail, relation) for _, relation, tail in block)
        rows = sum(many * tails[query] for query, many in forward.items())
        queries = sum(tails[query] for query in forward)
        found.append(
            (
                len(forward),
                len(forward) + len(backward),
                rows,
                rows + sum(many * heads[query] for query, many in backward.items()),
                queries,
                queries + sum(heads[query] for query in backward),
            )
        )
    return found


def _at_most(counted: Sequence[int], size: int, unknown: int) -> int:
    """Of the next larger size that was counted: a larger block has no fewer."""
    if not counted:
        return unknown
    place = bisect_left(_COUNTED, size)
    return counted[place] if place < len(counted) else ceil(counted[-1] * size / _COUNTED[-1]) + 1
