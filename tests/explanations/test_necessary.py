"""The sets: facts whose influences lift the tail above its rivals, and where the prediction stands."""

from __future__ import annotations

import pytest
import torch
from explaining import HEAD, prediction_of, some_model, some_train

from kgops.explanations.necessary import Influences, explain, facts_of
from kgops.tracin.blocks import Settings, TracinCheckpoint
from kgops.tracin.curvature import Training
from kgops.tracin.loss import TARGET
from kgops.tracin.scan import AllScores, scan

torch.set_num_threads(1)


@pytest.mark.parametrize("one_positive", [False, True])
def test_falls_are_the_fisher_scores_of_the_tail_and_its_rivals(one_positive: bool) -> None:
    train, model = some_train(3), some_model(3)
    training = Training(train, "softmax" if one_positive else "bce", one_positive)
    prediction = prediction_of(model, train, (HEAD, 1, 4))
    facts = facts_of(train, HEAD)
    falls = Influences(model, training).falls(prediction, train[facts])
    sink = AllScores(len(prediction.asked), len(train), like=model.entities)
    how = Settings(score="fisher", training=training)
    scan([TracinCheckpoint(model, 1.0)], TARGET, train, prediction.asked, sink, settings=how)
    assert torch.allclose(falls, sink.scores[:, facts], rtol=1e-9, atol=1e-12)


def test_rivals_are_the_highest_entities_that_are_no_known_tails() -> None:
    train, model = some_train(4), some_model(4)
    prediction = prediction_of(model, train, (HEAD, 0, 4))
    scores = model(torch.tensor([HEAD]), torch.tensor([0]))[0].detach()
    known = train[(train[:, 0] == HEAD) & (train[:, 1] == 0)][:, 2]
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
    falls = torch.tensor([[5.0, 1.0, 0.5], *[[6.0, 0.0, 0.0]] * 4]).double()
    found = explain(prediction, triples, falls, most=3)
    assert [row for row, _ in found] == [1, 2]
    assert [effect for _, effect in found] == pytest.approx([-1.0, -0.5])


def test_a_prediction_that_was_trained_on_is_not_its_own_evidence() -> None:
    train, model = some_train(1), some_model(1)
    facts = train[facts_of(train, HEAD)]
    prediction = prediction_of(model, train, (HEAD, 1, 6))
    falls = Influences(model, Training(train, "bce", False)).falls(prediction, facts)
    found = explain(prediction, facts, falls, most=len(facts))
    assert found and [HEAD, 1, 6] not in facts[[row for row, _ in found]].tolist()
