"""The sets: facts whose influences lift the tail above its rivals, and the heads that they are carried over to."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from explaining import ENTITIES, HEAD, RELATIONS, prediction_of, some_model, some_train

from kgops.maths.explain.prediction import Influences, Prediction, Query, effects_of, facts_of, strongest
from kgops.maths.explain.sufficient import OTHERS, Additions, carried, others_of, sentence_of, sufficient
from kgops.maths.explain.verify import ALL, RANDOM, SETS
from kgops.maths.graphs.triples import Graph
from kgops.maths.graphs.vocabulary import Vocabulary
from kgops.maths.predict.known import KnownTriples
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.curvature import Curvature, Training
from kgops.maths.tracin.loss import TARGET
from kgops.maths.tracin.retraining import Outcome
from kgops.maths.tracin.scan import AllScores, Scoring


def test_falls_are_the_fisher_scores_of_the_tail_and_its_rivals() -> None:
    train, model = some_train(3), some_model(3)
    training = Training(train, "bce", one_positive=False)
    prediction = prediction_of(model, train, (HEAD, 1, 4))
    facts = facts_of(train, HEAD)
    falls = Influences(model, training).falls(prediction, train[facts])
    sink = AllScores(len(prediction.rows), len(facts))
    tests = prediction.rows // torch.tensor([1, 2, 1])
    how = Settings(score="fisher", training=training)
    Scoring([TracinCheckpoint(model, 1.0)], TARGET, how)(train[facts], tests, sink)
    assert torch.allclose(falls, sink.scores, rtol=1e-9, atol=1e-12)


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
    # The model of the graph whose triples are turned round.
    other, turned_round = copy.deepcopy(model), Training(train.flip(1), loss, one_positive)
    with torch.no_grad():
        pairs = model.relations.view(-1, 2, model.relations.shape[1])
        other.relations.copy_(pairs.flip(1).reshape_as(model.relations))
    of_tail = prediction_of(other, train.flip(1), (4, 1, HEAD))
    expected = Influences(other, turned_round).falls(of_tail, facts.flip(1))
    assert torch.allclose(falls, expected, rtol=1e-9, atol=1e-12)


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


TRIPLE = (HEAD, 1, 6)
QUERY = Query(TRIPLE)


def some_graph(seed: int) -> Graph:
    train = some_train(seed)
    entities, relations = (Vocabulary.of(map(str, range(size))) for size in (ENTITIES, RELATIONS))
    return Graph(train, train[:0], torch.tensor([[1, 1, 6]]), entities, relations)


def some_additions(query: Query) -> tuple[Additions, torch.Tensor, list[int]]:
    """Of one fact to four others that lack it; with the triples of training, and those others."""
    graph = some_graph(4)
    at = [int((graph.train == torch.tensor([HEAD, 0, 5])).all(1).nonzero())]
    free = [c for c in range(ENTITIES) if c not in (HEAD, 6) and [c, 0, 5] not in graph.train.tolist()][:4]
    return Additions(graph, [query], [at], [free], seed=0), graph.train, free


def others(seed: int, graph: Graph, query: Query = QUERY) -> list[Prediction]:
    draw = torch.Generator().manual_seed(seed)
    return others_of(some_model(seed), query, KnownTriples(graph), draw)


def test_other_heads_are_those_for_which_the_tail_is_neither_known_nor_first() -> None:
    graph = some_graph(1)
    found = others(1, graph)
    assert 0 < len(found) <= OTHERS
    heads = [one.query.given for one in found]
    assert len(set(heads)) == len(heads) and not {HEAD, 6, 1} & set(heads), "1 has it, in a file"
    assert all(one.query.triple[1:] == TRIPLE[1:] and one.standing().rank > 1 for one in found)
    having = set(graph.train[graph.train[:, 1] == 1][:, 0].tolist())
    assert [head in having for head in heads] == sorted((head in having for head in heads), reverse=True)
    assert heads == [one.query.given for one in others(1, graph)]


def test_a_fact_is_carried_over_by_another_head_in_its_place() -> None:
    facts = torch.tensor([[HEAD, 0, 5], [7, 2, HEAD], [HEAD, 2, HEAD]])
    assert carried(facts, HEAD, 9).tolist() == [[9, 0, 5], [7, 2, 9], [9, 2, 9]]
    assert facts[0, 0] == HEAD


@pytest.mark.parametrize("one_positive", [False, True])
def test_facts_are_ranked_by_what_they_do_to_the_leads_of_the_others(one_positive: bool) -> None:
    graph = some_graph(2)
    influences = Influences(
        some_model(2), Training(graph.train, "softmax" if one_positive else "bce", one_positive)
    )
    facts, heads, known = graph.train[facts_of(graph.train, HEAD)], others(2, graph), KnownTriples(graph)
    found = sufficient(influences, QUERY, heads, facts, known, most=3)
    expected = torch.zeros(len(facts))
    for row, fact in enumerate(facts):
        for other in heads:
            added = carried(fact[None], HEAD, other.query.given)
            if not known.are_known(added)[0]:
                falls = influences.falls(other, added)
                expected[row] += float(falls[0, 0] - other.shares @ falls[1:, 0]) / len(heads)
    expected[(facts == torch.tensor(TRIPLE)).all(1)] = -torch.inf
    best = [row for row in expected.argsort(descending=True).tolist() if expected[row] > 0][:3]
    assert [row for row, _ in found] == best
    assert [effect for _, effect in found] == pytest.approx(expected[best].tolist(), rel=1e-4)


class Trainings:
    about: Mapping[str, Any] = {"model": "none"}

    def __init__(self, train: torch.Tensor, tests: torch.Tensor) -> None:
        self.before, self.tests = {tuple(row) for row in train.tolist()}, tests
        self.added: list[set[tuple[int, ...]]] = []

    def __call__(
        self, train: torch.Tensor, seed: int, on_progress: Callable[[float], None]
    ) -> Sequence[Outcome]:
        rows = [tuple(row) for row in train.tolist()]
        assert self.before <= set(rows) and len(rows) == len(set(rows))
        self.added.append(set(rows) - self.before)
        first = {(row[0]) for row in self.added[-1] if row[1:] == (0, 5)}
        return [Outcome(0, 0.5, 1.0 if c in first else 4.0, 1.0) for c, _, _ in self.tests.tolist()]


def test_sets_of_a_tail_are_added_to_other_tails_and_judged_by_the_heads_rank(tmp_path: Path) -> None:
    added, train, free = some_additions(Query((6, 1, HEAD), asks_head=True))
    assert added.tests.tolist() == [[6, 1, c] for c in free]

    class OfHeads(Trainings):
        def __call__(
            self, train: torch.Tensor, seed: int, on_progress: Callable[[float], None]
        ) -> Sequence[Outcome]:
            outcomes = super().__call__(train, seed, on_progress)
            head_rank = 1.0 if self.added[-1] else 2.0
            return [replace(one, rank=9.0, head_rank=head_rank) for one in outcomes]

    found = added.trained_with(OfHeads(train, added.tests), tmp_path / "journal", seeds=1)
    assert found.hits_at_1(SETS) == [1.0] and found.hits_at_1(ALL) == [0.0]


def test_sets_and_as_many_random_facts_of_the_head_are_added_to_the_others(tmp_path: Path) -> None:
    added, train, free = some_additions(QUERY)
    assert added.tests.tolist() == [[c, 1, 6] for c in free]
    trainings = Trainings(train, added.tests)
    found = added.trained_with(trainings, tmp_path / "journal", seeds=1)
    assert trainings.added[0] == {(c, 0, 5) for c in free} and trainings.added[2] == set()
    assert 0 < len(trainings.added[1]) <= 4
    assert {end for row in trainings.added[1] for end in (row[0], row[2])} & set(free)
    assert not {(c, 1, 6) for c in free} & trainings.added[1], "the prediction itself is never added"
    assert found.hits_at_1(SETS) == [1.0] and found.hits_at_1(ALL) == [0.0]
    assert found.changed[SETS] == 4 and found.changed[ALL] == 0
    for row in trainings.added[0] | trainings.added[1]:
        assert list(row) in added.graph.valid.tolist(), "a true answer, which ranks leave out"
    assert "ranks first for 100% of 4 other heads" in sentence_of(found)
    assert "with nothing added, for 0%" in sentence_of(found) and RANDOM in found.ranks
