"""The sets: facts whose influences lift the tail above its rivals, and where the prediction stands."""

from __future__ import annotations

import copy
from typing import Literal

import pytest
import torch
from explaining import HEAD, prediction_of, some_model, some_train

from kgops.maths.explain.prediction import Influences, effects_of, facts_of, strongest
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.curvature import Curvature, Training
from kgops.maths.tracin.loss import TARGET
from kgops.maths.tracin.scan import AllScores, Scoring


def test_falls_are_the_fisher_scores_of_the_tail_and_its_rivals() -> None:
    train, model = some_train(3), some_model(3)
    training = Training(train, "bce", one_positive=False)
    prediction = prediction_of(model, train, (HEAD, 1, 4))
    facts = facts_of(train, HEAD)
    falls = Influences(model, training).falls(prediction, train[facts])
    assert torch.allclose(
        falls, scanned(model, training, prediction.rows, train[facts]), rtol=1e-9, atol=1e-12
    )


def scanned(model: ConvE, training: Training, rows: torch.Tensor, facts: torch.Tensor) -> torch.Tensor:
    sink = AllScores(len(rows), len(facts))
    tests = torch.stack([rows[:, 0], rows[:, 1] // 2, rows[:, 2]], dim=1)
    how = Settings(score="fisher", training=training)
    Scoring([TracinCheckpoint(model, 1.0)], TARGET, how)(facts, tests, sink)
    return sink.scores


@pytest.mark.parametrize("one_positive", [False, True])
def test_falls_of_a_predicted_head_are_those_of_a_tail_of_the_inverse(
    one_positive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its labels are drawn for one query after the other, and a graph turned round has another order.
    monkeypatch.setattr(Curvature, "applied", lambda self, factors: factors)
    train, model = some_train(3), some_model(3)
    loss: Literal["bce", "softmax"] = "softmax" if one_positive else "bce"
    prediction = prediction_of(model, train, (HEAD, 1, 4), asks_head=True)
    facts = train[facts_of(train, HEAD, 4)]
    falls = Influences(model, Training(train, loss, one_positive)).falls(prediction, facts)
    other, turned_round = exchanged(model), Training(train.flip(1), loss, one_positive)
    of_tail = prediction_of(other, train.flip(1), (4, 1, HEAD))
    expected = Influences(other, turned_round).falls(of_tail, facts.flip(1))
    assert torch.allclose(falls, expected, rtol=1e-9, atol=1e-12)


def exchanged(model: ConvE) -> ConvE:
    """The model of the graph whose triples are turned round."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        pairs = model.relations.view(-1, 2, model.relations.shape[1])
        other.relations.copy_(pairs.flip(1).reshape_as(model.relations))
    return other


@pytest.mark.parametrize("asks_head", [False, True])
def test_rivals_are_the_highest_entities_that_are_no_known_answers(asks_head: bool) -> None:
    train, model = some_train(4), some_model(4)
    triple = (4, 0, HEAD) if asks_head else (HEAD, 0, 4)
    prediction = prediction_of(model, train, triple, asks_head=asks_head)
    scores = model(torch.tensor([HEAD]), torch.tensor([1 if asks_head else 0]))[0].detach()
    given, answers = (2, 0) if asks_head else (0, 2)
    known = train[(train[:, given] == HEAD) & (train[:, 1] == 0)][:, answers]
    scores[known], own = -torch.inf, float(scores[4])
    scores[4] = -torch.inf
    assert prediction.rivals.tolist() == scores.topk(4).indices.tolist()
    now = prediction.standing()
    assert now.rank == 1 + int((scores > own).sum())
    assert now.score == pytest.approx(own)
    assert now.margin == pytest.approx(own - float(scores.logsumexp(0)))


def test_a_fact_that_lifts_the_tail_and_its_rivals_alike_explains_nothing() -> None:
    train, model = some_train(5), some_model(5)
    prediction = prediction_of(model, train, (HEAD, 0, 4))
    triples = torch.tensor([[HEAD, 1, 0], [HEAD, 1, 1], [HEAD, 1, 2]])
    falls = torch.tensor([[5.0, 1.0, 0.5], *[[9.0, 0.0, 0.0]] * 4]).double()
    found = strongest(effects_of(prediction, triples, falls), most=3)
    assert [row for row, _ in found] == [1, 2]
    assert [effect for _, effect in found] == pytest.approx([-1.0, -0.5])


def test_rivals_count_by_the_share_of_facts_that_an_end_keeps() -> None:
    train, model = some_train(5), some_model(5)
    prediction = prediction_of(model, train, (HEAD, 0, 4))
    # One fact of the head, and four of the tail, which keeps three of them.
    triples = torch.tensor([[HEAD, 1, 0], *([n, 1, 4] for n in range(6) if n not in (HEAD, 4))])
    falls = torch.tensor([[5.0, 5.0, 0.0, 0.0, 0.0], *[[6.0, 8.0, 0.0, -4.0, 0.0]] * 4]).double()
    found = strongest(effects_of(prediction, triples, falls), most=5)
    assert [row for row, _ in found] == [0, 3]
    assert [effect for _, effect in found] == pytest.approx([-5.0, -3.0])


def test_a_prediction_that_was_trained_on_is_not_its_own_evidence() -> None:
    train, model = some_train(1), some_model(1)
    facts = train[facts_of(train, HEAD)]
    prediction = prediction_of(model, train, (HEAD, 1, 6))
    falls = Influences(model, Training(train, "bce", False)).falls(prediction, facts)
    found = strongest(effects_of(prediction, facts, falls), most=len(facts))
    assert found and [HEAD, 1, 6] not in facts[[row for row, _ in found]].tolist()
