"""Distinct queries and known answers in each block of an evaluation.

Queries are ranked in blocks, in an order that only the triples decide (`kgops.maths.train.evaluate`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Triple = tuple[int, int, int]
Query = tuple[int, int]


EVALUATION_QUERIES = 512  # in a block
_ALL_KEPT = 4  # blocks; of more, the largest stands for them all


class QueryBlock(NamedTuple):
    """One block: its queries, the distinct ones among them, and the known answers of them all."""

    queries: int
    distinct: int
    answers: int

    @classmethod
    def of(cls, block: Sequence[Query], known: Mapping[Query, int]) -> QueryBlock:
        return cls(len(block), len({*block}), sum(known[query] for query in block))


@dataclass(frozen=True, slots=True)
class EvaluationBlocks:
    """Of an evaluation: blocks of both directions, where the model has inverse relations; otherwise of tails, and
    of heads, which are asked relation by relation. In their order; of many, the largest twice."""

    both: tuple[QueryBlock, ...] = ()
    tails: tuple[QueryBlock, ...] = ()
    heads: tuple[QueryBlock, ...] = ()
    relations: int = 0

    @classmethod
    def of(cls, triples: Collection[Triple], known: Collection[Collection[Triple]]) -> EvaluationBlocks:
        """Of `triples`, apart from the splits that are `known`."""
        of_tails = Counter((h, r) for split in known for h, r, _ in split)
        of_heads = Counter((t, r) for split in known for _, r, t in split)
        answers = {(s, 2 * r): n for (s, r), n in of_tails.items()}
        answers |= {(s, 2 * r + 1): n for (s, r), n in of_heads.items()}
        tails = sorted((h, 2 * r) for h, r, _ in triples)
        heads = [(t, 2 * r + 1) for _, r, t in sorted(triples)]
        by_relation: dict[int, list[Query]] = defaultdict(list)
        for query in heads:
            by_relation[query[1]].append(query)
        blocks = [batch for relation in sorted(by_relation) for batch in _batches(by_relation[relation])]
        return cls(
            _summarized([QueryBlock.of(batch, answers) for batch in _batches(sorted(tails + heads))]),
            _summarized([QueryBlock.of(batch, answers) for batch in _batches(tails)]),
            _summarized([QueryBlock.of(batch, answers) for batch in blocks]),
            len(by_relation),
        )

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> EvaluationBlocks:
        """Of a table that went through JSON."""
        blocks = {
            name: tuple(QueryBlock(*block) for block in table[name]) for name in ("both", "tails", "heads")
        }
        return cls(**{**table, **blocks})


def _summarized(blocks: list[QueryBlock]) -> tuple[QueryBlock, ...]:
    if len(blocks) <= _ALL_KEPT:
        return tuple(blocks)
    return (QueryBlock(*map(max, zip(*blocks, strict=True))),) * 2


def _batches(queries: Sequence[Query]) -> Iterator[Sequence[Query]]:
    for start in range(0, len(queries), EVALUATION_QUERIES):
        yield queries[start : start + EVALUATION_QUERIES]
