"""Training again without the sets: which triples go, with which seeds, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from explaining import HEAD, some_train

from kgops.explanations.verify import ALL, RANDOM, WITHOUT, verified
from kgops.tracin.retraining import Outcome

TRAIN = some_train(6)
PREDICTIONS = torch.tensor([[HEAD, 0, 9], [HEAD, 1, 6]])
SETS = [torch.tensor([[HEAD, 0, 3], [7, 1, HEAD]]), torch.tensor([[HEAD, 0, 3]])]


class Trainings:
    """Remembers what it is asked to train on; its ranks grow with what is missing, and with the seed."""

    about: Mapping[str, Any] = {"model": "none"}

    def __init__(self, tests: int = len(PREDICTIONS)) -> None:
        self.tests = tests
        self.asked: list[tuple[set[tuple[int, ...]], int]] = []

    def __call__(
        self, train: torch.Tensor, seed: int, on_progress: Callable[[float], None]
    ) -> Sequence[Outcome]:
        left = {tuple(row) for row in train.tolist()}
        missing = {tuple(row) for row in TRAIN.tolist()} - left
        self.asked.append((missing, seed))
        rank = float(1 + len(missing) + (seed == 9))
        return [Outcome(0.0, 0.5, 0.0, 0.0, rank, 1.0) for _ in range(self.tests)]


def test_all_sets_go_at_once_and_controls_have_the_same_seeds(tmp_path: Path) -> None:
    trainings, path = Trainings(), tmp_path / "journal"
    found = verified(TRAIN, PREDICTIONS, SETS, trainings, path, seed=7, seeds=2)
    assert [seed for _, seed in trainings.asked] == [8, 9] * 3
    missing = [gone for gone, _ in trainings.asked]
    assert missing[0] == missing[1] == {(HEAD, 0, 3), (7, 1, HEAD)}
    assert missing[4] == missing[5] == set()
    assert missing[2] == missing[3] and 2 <= len(missing[2]) <= 3
    for fact in missing[2]:
        assert {HEAD, *PREDICTIONS[:, 2].tolist()} & {fact[0], fact[2]}
    assert found.ranks == {WITHOUT: [[3, 3], [4, 4]], RANDOM: found.ranks[RANDOM], ALL: [[1, 1], [2, 2]]}
    assert found.mrr(ALL) == [1, 0.5] and found.hits_at_1(ALL) == [1, 0] and found.rank(WITHOUT, 1) == 3.5
    assert found.metrics()["mrr_retrained"] == pytest.approx((1 / 3 + 1 / 4) / 2)
    told = found.sentence()
    assert "without the 2 triples of the sets MRR 0.29" in told and "noise alone, MRR 0.75 ± 0.25" in told
    again = Trainings()
    assert verified(TRAIN, PREDICTIONS, SETS, again, path, seed=7, seeds=2) == found
    assert again.asked == [], "finished ones are not repeated"


def test_a_random_fact_is_never_the_prediction_itself(tmp_path: Path) -> None:
    for seed in range(20):
        trainings = Trainings(1)
        found = verified(TRAIN, PREDICTIONS[1:], SETS[1:], trainings, tmp_path / f"{seed}", seed=seed)
        assert found.removed[RANDOM] == 1
        assert all((HEAD, 1, 6) not in missing for missing, _ in trainings.asked)
