"""Validation of influences: what is deleted, what is retrained and resumed, and what the metrics say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from validating import some_graph

from kgops.errors import BadInput
from kgops.maths.tracin.retraining import Outcome
from kgops.maths.tracin.validate import Validation, validate

torch.set_num_threads(1)

SEED = 7


class Killed(BaseException):
    pass


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
        return [Outcome(x, float(torch.tensor(x).sigmoid()), x, -x, 1 + abs(x), 2.0) for x in logits.tolist()]

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
    found = run(retrain, tmp_path / "journal", together=False)
    order = SCORES.argsort(dim=1, descending=True)
    everything_deleted = [deleted for deleted, _ in retrain.calls]
    for test in range(4):
        top, foot = order[test, :5], order[test, -5:]
        assert {frozenset(top.tolist()), frozenset(foot.tolist())} <= set(everything_deleted)
        for deletion, rows in (("proponents", top), ("opponents", foot)):
            change = found.of_test(test, deletion, "logit")
            assert change.n == 1
            assert change.mean == pytest.approx(-float(SCORES[test, rows].sum()), abs=1e-5)
    assert found.retrainings == len(retrain.calls) == 4 + 4 * (2 + 2 * 3)
    assert {seed for deleted, seed in retrain.calls if deleted} == {SEED}


def test_one_sentence_says_what_was_found_beside_controls_and_noise(tmp_path: Path) -> None:
    clear = run(additive(), tmp_path / "a", together=False, noise=1).sentence("logit")
    assert clear.startswith(
        "validation: without the 5 strongest triples of each test triple the logit of 4 test"
    )
    assert "another seed alone 1.000): a fall beyond noise and controls." in clear
    # Two more seeds add 1 and 4: that noise hides what the sentence above found.
    hidden = run(additive(), tmp_path / "b", together=False, noise=5).sentence("logit")
    assert hidden.endswith("no fall beyond noise.")
    alone = run(additive(), tmp_path / "c", together=False, noise=0).sentence("logit")
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
