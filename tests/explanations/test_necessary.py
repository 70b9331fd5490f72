"""The sets: as small as brute force finds them, nothing in them that they can do without."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from explaining import HEAD, head_row, prediction_of, some_model, some_train

from kgops.explanations.head_row import HeadRow
from kgops.explanations.necessary import explain, gradient_order
from kgops.explanations.prediction import Prediction
from kgops.explanations.settle import settled, solved

torch.set_num_threads(1)


def predicted(seed: int, damping: float = 0.5) -> tuple[HeadRow, Prediction]:
    """A prediction that the model ranks first. The more damping, the less the row moves without a fact."""
    train, model = some_train(seed, 25), some_model(seed)
    head = head_row(model, train, damping=damping)
    known = train[(train[:, 0] == HEAD) & (train[:, 1] == 1)][:, 2]
    scores = model(torch.tensor([HEAD]), torch.tensor([2]))[0].detach()
    scores[known] = -torch.inf
    return head, prediction_of(model, train, (HEAD, 1, int(scores.argmax())))


def falls(head: HeadRow, prediction: Prediction, size: int) -> dict[tuple[int, ...], float]:
    """How far the margin falls without each set of so many facts, by training the row again."""
    whole = torch.ones(len(head.facts), dtype=torch.bool)
    at = head.at(head.start, whole, want_curvature=True)
    assert at.curvature is not None
    before, found = prediction.standing(head.start).margin, {}
    for some in combinations(range(len(head.facts)), size):
        kept = whole.clone()
        kept[list(some)] = False
        then = settled(head, at, kept, solved(at.curvature), tolerance=1e-6, most=100)
        found[some] = before - prediction.standing(then.vector).margin
    return found


@pytest.mark.parametrize("seed", range(8))
def test_sets_are_the_best_by_brute_force_where_moves_are_small(seed: int) -> None:
    head, prediction = predicted(seed, damping=100.0)
    for size in (1, 2):
        found = explain(head, prediction, most=size, overshoot=1e6, tolerance=1e-6)
        every = falls(head, prediction, size)
        own = found.before.margin - found.after.margin
        assert own == pytest.approx(every[tuple(sorted(found.facts))], rel=1e-4)
        assert own == pytest.approx(max(every.values()), rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_no_fact_of_a_set_can_be_left_out(seed: int) -> None:
    head, prediction = predicted(seed)
    order = gradient_order(head, prediction)[::-1]  # the weakest first, so that there is something to prune
    found = explain(head, prediction, most=len(order), overshoot=0.0, order=order, tolerance=1e-6)
    whole = torch.ones(len(head.facts), dtype=torch.bool)
    at = head.at(head.start, whole, want_curvature=True)
    assert at.curvature is not None
    for fact in found.facts if found.lost and len(found.facts) > 1 else ():
        kept = whole.clone()
        kept[[one for one in found.facts if one != fact]] = False
        then = settled(head, at, kept, solved(at.curvature), tolerance=1e-6)
        assert prediction.standing(then.vector).lead > 0


def test_pruning_drops_facts_and_keeps_what_the_set_does() -> None:
    runs = []
    for seed in range(8):
        head, prediction = predicted(seed)
        order = gradient_order(head, prediction)[::-1]
        runs.append(explain(head, prediction, most=len(order), overshoot=0.0, order=order))
    pruned = [found for found in runs if found.pruned and found.lost]
    assert pruned, "none of the graphs had anything to prune"
    assert all(found.after.rank > 1 for found in pruned)


def test_a_prediction_that_was_trained_on_is_not_its_own_evidence() -> None:
    train, model = some_train(1), some_model(1)
    head = head_row(model, train)
    prediction = prediction_of(model, train, (HEAD, 1, 6))
    for order in (None, gradient_order(head, prediction)):
        found = explain(head, prediction, most=len(head.facts), overshoot=100.0, order=order)
        assert [HEAD, 1, 6] not in head.facts.triples[list(found.facts)].tolist()
