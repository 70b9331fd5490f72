"""Validation of influences: what is deleted, what is retrained and resumed, and what the metrics say."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from recording import Killed
from validating import named, some_graph

from kgops.errors import BadInput
from kgops.maths.graphs.triples import Graph
from kgops.maths.tracin.retraining import Outcome
from kgops.maths.tracin.validate import NOISE, Validation, validate

SEED = 7


class Additive:
    """A retraining whose truth is known: a test's logit is the sum of its scores over what is trained
    on, plus a number that depends on the seed alone."""

    def __init__(self, train: torch.Tensor, scores: torch.Tensor, die_after: int | None = None) -> None:
        self.rows = {tuple(triple): i for i, triple in enumerate(train.tolist())}
        self.scores, self.die_after = scores.double(), die_after
        self.calls: list[tuple[frozenset[int], int]] = []

    @property
    def about(self) -> Mapping[str, Any]:
        return {"retraining": "additive"}

    def __call__(self, train: torch.Tensor, seed: int, on_progress: Callable[[float], None]) -> list[Outcome]:
        if len(self.calls) == self.die_after:
            raise Killed
        rows = [self.rows[tuple(triple)] for triple in train.tolist()]
        self.calls.append((frozenset(self.rows.values()) - frozenset(rows), seed))
        on_progress(0.5)
        logits = self.scores[:, rows].sum(1) + self.of_seed(seed)
        return [Outcome(x, float(torch.tensor(x).sigmoid()), 1 + abs(x), 2.0) for x in logits.tolist()]

    @staticmethod
    def of_seed(seed: int) -> float:
        return float((seed - SEED) ** 2)


GRAPH = some_graph()
SCORES = torch.randn(4, 60, generator=torch.Generator().manual_seed(4))


def run(retrain: Additive, journal: Path, **how: Any) -> Validation:
    return validate(GRAPH, GRAPH.test, SCORES, 5, retrain, journal, seed=SEED, **how)


def additive(die_after: int | None = None) -> Additive:
    return Additive(GRAPH.train, SCORES, die_after)


def test_the_strongest_are_deleted_and_every_change_is_that_of_one_deletion(tmp_path: Path) -> None:
    retrain = additive()
    found = run(retrain, tmp_path / "journal")
    order = SCORES.argsort(dim=1, descending=True)
    for deletion, strongest in (("proponents", order[:, :5]), ("opponents", order[:, -5:])):
        rows = sorted({*strongest.flatten().tolist()})
        assert frozenset(rows) in {deleted for deleted, _ in retrain.calls}
        for test in range(4):
            change = found.change(deletion, "logit", test)
            assert change == pytest.approx(-float(SCORES[test, rows].sum()), abs=1e-5)
    assert found.retrainings == len(retrain.calls) == 4 + 2 + 2 * 3
    assert {seed for deleted, seed in retrain.calls if deleted} == {SEED}


def test_the_union_is_deleted_and_controls_delete_as_many(tmp_path: Path) -> None:
    retrain = additive()
    found = run(retrain, tmp_path / "journal", draws=2)
    top = frozenset(SCORES.topk(5, dim=1).indices.flatten().tolist())
    sizes = {(c.deletion, c.draw): c.deleted for c in found.changes if c.deletion != NOISE}
    assert (top, SEED) in retrain.calls
    for deletion in (("proponents", 0), ("random", 0), ("random", 1), ("neighbours", 0), ("neighbours", 1)):
        assert sizes.pop(deletion) == len(top)
    assert set(sizes) == {("opponents", 0)}
    assert len({deleted for deleted, _ in retrain.calls}) == 1 + 2 + 2 * 2, "every draw is another"
    assert {change.test for change in found.changes} == {0, 1, 2, 3}


def test_neighbours_are_drawn_evenly_from_the_triples_that_touch_each_test(tmp_path: Path) -> None:
    # Test 0 touches 20 training triples, test 1 the other 3: each must give, not the larger alone.
    few = [[0, 0, i] for i in (2, 3, 4)]
    many = [[1, 0, i] for i in range(5, 25)]
    train = torch.tensor(few + many)
    tests = torch.tensor([[1, 1, 31], [0, 1, 30]])
    graph = Graph(train, train[:0], tests, named("e", 32), named("r", 2))
    scores = torch.randn(2, 23, generator=torch.Generator().manual_seed(0))
    retrain = Additive(train, scores)
    found = validate(graph, tests, scores, 3, retrain, tmp_path / "j", seed=SEED, draws=3)
    deleted = next(c.deleted for c in found.changes if c.deletion == "neighbours")
    drawn = [rows for rows, _ in retrain.calls[-6:]]  # random and neighbours in turn
    assert 4 <= deleted == len(drawn[0])
    for rows in drawn[1::2]:
        assert len(rows) == deleted
        assert len(rows & {0, 1, 2}) == min(3, deleted // 2)
    alone = Additive(train, scores[1:])
    validate(graph, tests[1:], scores[1:], 3, alone, tmp_path / "k", seed=SEED, draws=1)
    assert (frozenset({0, 1, 2}), SEED) in alone.calls


def test_the_noise_floor_is_what_another_seed_alone_changes(tmp_path: Path) -> None:
    found = run(additive(), tmp_path / "journal", noise=2)
    # Seeds 7, 8, 9 add 0, 1, 4: pairs lie 1, 4 and 3 apart.
    assert found.noise("logit") == pytest.approx((1 + 4 + 3) / 3)
    assert found.metrics()["logit_noise"] == pytest.approx(8 / 3)


def test_one_sentence_says_what_was_found_beside_controls_and_noise(tmp_path: Path) -> None:
    found = run(additive(), tmp_path / "a", noise=1)
    change = {name: found.metrics()[f"logit_change_{name}"] for name in ("proponents", "random", "opponents")}
    assert change["proponents"] < change["random"] < change["opponents"]
    clear = found.sentence("logit")
    assert clear.startswith(
        "validation: without the 5 strongest triples of each test triple the logit of 4 test"
    )
    assert "another seed alone 1.000): a fall beyond noise and controls." in clear
    # Two more seeds add 1 and 4: that noise hides what the sentence above found.
    hidden = run(additive(), tmp_path / "b", noise=5).sentence("logit")
    assert hidden.endswith("no fall beyond noise.")
    alone = run(additive(), tmp_path / "c", noise=0).sentence("logit")
    assert "another seed alone n/a" in alone and "nobody can say" in alone


@pytest.mark.parametrize("torn", [b"", b'{"key": "12', b"\n\n"])
def test_a_killed_validation_does_only_what_is_missing_and_reports_the_same(
    tmp_path: Path, torn: bytes
) -> None:
    whole = run(additive(), tmp_path / "whole")
    journal = tmp_path / "journal"
    with pytest.raises(Killed):
        run(additive(die_after=5), journal)
    with journal.open("ab") as file:
        file.write(torn)
    again = additive()
    assert run(again, journal) == whole
    assert len(again.calls) == whole.retrainings - 5
    third = additive()
    assert run(third, journal).to_dict() == whole.to_dict()
    assert third.calls == []
    lines = [line for line in journal.read_bytes().split(b"\n") if line and line != torn]
    assert len({json.loads(line)["key"] for line in lines}) == len(lines) == whole.retrainings


def test_retrainings_of_other_data_tests_or_settings_are_not_taken_for_ours(tmp_path: Path) -> None:
    run(additive(), tmp_path / "j")
    other = Additive(GRAPH.train, SCORES[:3])
    validate(GRAPH, GRAPH.test[:3], SCORES[:3], 5, other, tmp_path / "j", seed=SEED)
    with_other_tests = len(other.calls)

    class Different(Additive):
        @property
        def about(self) -> Mapping[str, Any]:
            return {"retraining": "different"}

    different = Different(GRAPH.train, SCORES)
    run(different, tmp_path / "j")
    assert with_other_tests == len(different.calls) == 12


@pytest.mark.parametrize("k", [0, 61, 12])
def test_more_than_can_be_deleted_is_refused_with_the_numbers(tmp_path: Path, k: int) -> None:
    with pytest.raises(BadInput, match=r"of 60 training|each test triple: 60"):
        validate(GRAPH, GRAPH.test, SCORES, k, additive(), tmp_path / "j", seed=SEED)
