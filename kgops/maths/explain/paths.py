"""Paths of two and three training triples from the head of a prediction to its tail, strongest first.

A path is as strong as its weakest triple: without that one it leads nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from kgops.maths.explain.prediction import Influences, Prediction

_AROUND = 64  # strongest neighbours of each end that paths of three triples run through
_BETWEEN = 1024  # triples between those neighbours, at most


class Edge(NamedTuple):
    """A training triple, and the change of the lead without it: below 0 where it supports the prediction."""

    triple: tuple[int, int, int]
    effect: float


@dataclass(frozen=True, slots=True)
class EvidencePath:
    """Its triples in order, from the prediction's head to its tail. Each may point either way."""

    edges: tuple[Edge, ...]

    @property
    def effect(self) -> float:
        return max(edge.effect for edge in self.edges)


def paths_of(
    train: torch.Tensor,
    prediction: Prediction,
    influences: Influences,
    facts: Sequence[Edge],
    *,
    most: int,
    through: Iterable[tuple[int, int, int]] = (),
) -> list[EvidencePath]:
    """At most `most` paths of which every triple supports the prediction, and the strongest `through` each triple.

    `facts` are the triples of head and tail. Paths of three triples run through the strongest neighbours alone.
    """
    h, _, t = prediction.query.triple
    from_head, to_tail = _neighbours(facts, h, t), _neighbours(facts, t, h)
    found = [
        EvidencePath((first, last))
        for middle in from_head.keys() & to_tail.keys()
        for first in from_head[middle]
        for last in to_tail[middle]
    ]
    found += _of_three(train, prediction, influences, from_head, to_tail)
    found.sort(key=lambda path: (path.effect, len(path.edges), path.edges))
    listed = [path for path in found if path.effect < 0][:most]
    for triple in through:
        if not any(triple in _triples(path) for path in listed):
            listed += [path for path in found if triple in _triples(path)][:1]
    return listed


def _triples(path: EvidencePath) -> Iterator[tuple[int, int, int]]:
    return (edge.triple for edge in path.edges)


def _neighbours(facts: Iterable[Edge], end: int, other: int) -> dict[int, list[Edge]]:
    """Facts of `end` by the entity that they lead to, but for `other`."""
    found = defaultdict(list)
    for fact in facts:
        a, _, b = fact.triple
        if end in (a, b) and other not in (a, b) and a != b:
            found[b if a == end else a].append(fact)
    return found


def _of_three(
    train: torch.Tensor,
    prediction: Prediction,
    influences: Influences,
    from_head: dict[int, list[Edge]],
    to_tail: dict[int, list[Edge]],
) -> Iterator[EvidencePath]:
    first, last = _strongest(from_head), _strongest(to_tail)
    ends = [
        torch.isin(train[:, column], torch.tensor([*side])) for column in (0, 2) for side in (first, last)
    ]
    between = train[(ends[0] & ends[3]) | (ends[1] & ends[2])]
    between = between[between[:, 0] != between[:, 2]][:_BETWEEN]
    if not len(between):
        return
    falls = influences.falls(prediction, between)
    effects = (prediction.of_rivals(falls) - falls[0]).tolist()
    for (a, r, b), effect in zip(between.tolist(), effects, strict=True):
        for x, y in ((a, b), (b, a)):
            if x in first and y in last:
                yield EvidencePath((first[x], Edge((a, r, b), effect), last[y]))


def _strongest(neighbours: dict[int, list[Edge]]) -> dict[int, Edge]:
    best = {middle: min(facts, key=lambda fact: fact.effect) for middle, facts in neighbours.items()}
    kept = sorted(best, key=lambda middle: best[middle].effect)[:_AROUND]
    return {middle: best[middle] for middle in kept}
