"""The smallest set of facts of the head without which a prediction is lost, by the head's row trained again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kgops.explanations.head_row import HeadRow, Row
from kgops.explanations.prediction import Prediction, Standing
from kgops.explanations.settle import settled, solved

__all__ = ["Explanation", "explain", "gradient_order"]


@dataclass(frozen=True)
class Explanation:
    """`facts` are rows of the head's facts, in the order they were chosen. `effects`: of each fact removed alone, on
    the margin, to first order. `lost`: whether the prediction falls below its rank in the estimate."""

    facts: tuple[int, ...]
    effects: tuple[float, ...]
    before: Standing
    after: Standing
    lost: bool
    pruned: int


def gradient_order(head: HeadRow, prediction: Prediction) -> list[int]:
    """Facts whose removal moves the row down the margin's slope, the strongest first: data poisoning."""
    kept = torch.ones(len(head.facts), dtype=torch.bool, device=head.start.device)
    effects = head.effects(head.at(head.start, kept), kept, prediction.slope(head.start))
    return [int(fact) for fact in effects.argsort(stable=True) if effects[fact] < 0]


def explain(
    head: HeadRow,
    prediction: Prediction,
    *,
    most: int,
    overshoot: float,
    order: Sequence[int] | None = None,
    tolerance: float = 1e-2,
) -> Explanation:
    """At most `most` facts. With `order` they are tried by it; else each is the one whose removal lowers the margin
    most where the others are gone. The prediction is lost where another entity's score is above by `overshoot`.

    The prediction itself, where it is a training triple, is never one of them.
    """
    return _Search(head, prediction, most, overshoot, tolerance).run(order)


class _Search:
    def __init__(
        self, head: HeadRow, prediction: Prediction, most: int, overshoot: float, tolerance: float
    ) -> None:
        self.head, self.prediction = head, prediction
        self.most, self.overshoot, self.tolerance = most, overshoot, tolerance
        self.before = prediction.standing(head.start)
        is_itself = (head.facts.triples == torch.tensor(prediction.triple)).all(dim=1)
        self.candidates = ~is_itself.to(head.start.device)

    def run(self, order: Sequence[int] | None) -> Explanation:
        at = self.head.at(self.head.start, self._without(()), want_curvature=True)
        inverse = self._inverse(at)
        alone = self._effects(at, (), inverse)
        waiting = None if order is None else iter(order)
        chosen: list[int] = []
        while len(chosen) < self.most:
            if waiting is not None:
                fact = next((one for one in waiting if self.candidates[one]), None)
            else:
                effects = alone if not chosen else self._effects(at, chosen, inverse)
                fact = int(effects.argmin()) if len(effects) and float(effects.min()) < 0 else None
            if fact is None:
                break
            chosen.append(fact)
            at = self._settled(at, chosen, inverse)
            if self._is_lost(at):
                break
            if waiting is None and len(chosen) < self.most:
                at = self.head.at(at.vector, self._without(chosen), want_curvature=True)
                inverse = self._inverse(at)
        found, at = self._pruned(chosen, at, inverse)
        own = tuple(float(alone[fact]) for fact in found)
        after = self.prediction.standing(at.vector)
        return Explanation(tuple(found), own, self.before, after, self._is_lost(at), len(chosen) - len(found))

    def _pruned(self, chosen: list[int], at: Row, inverse: torch.Tensor) -> tuple[list[int], Row]:
        """Without the facts that the set can do without, the first chosen last: the effect stays."""
        lost = self._is_lost(at)
        for fact in list(chosen)[::-1]:
            fewer = [one for one in chosen if one != fact]
            if not fewer:
                break
            then = self._settled(at, fewer, inverse)
            as_strong = self._margin(then) <= self._margin(at)
            if self._is_lost(then) if lost else as_strong:
                chosen, at = fewer, then
        return chosen, at

    def _without(self, facts: Sequence[int]) -> torch.Tensor:
        kept = torch.ones(len(self.head.facts), dtype=torch.bool, device=self.head.start.device)
        kept[list(facts)] = False
        return kept

    def _inverse(self, at: Row) -> torch.Tensor:
        assert at.curvature is not None
        return solved(at.curvature)

    def _effects(self, at: Row, chosen: Sequence[int], inverse: torch.Tensor) -> torch.Tensor:
        direction = inverse @ self.prediction.slope(at.vector)
        return self.head.effects(at, self._without(chosen), direction) * self.candidates

    def _settled(self, at: Row, facts: Sequence[int], inverse: torch.Tensor) -> Row:
        return settled(self.head, at, self._without(facts), inverse, tolerance=self.tolerance)

    def _margin(self, at: Row) -> float:
        return self.prediction.standing(at.vector).margin

    def _is_lost(self, at: Row) -> bool:
        return self.prediction.above(at.vector, self.overshoot) >= self.before.rank
