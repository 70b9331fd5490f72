"""Training again without the sets: which triples go, with which seeds, and what is said of it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from explaining import HEAD, some_train

from kgops.maths.explain.prediction import Query
from kgops.maths.explain.verify import ALL, FEWER, RANDOM, SETS, Verified, rows_of, smallest, verified
from kgops.maths.tracin.retraining import Journal, Outcome

TRAIN = some_train(6)
PREDICTIONS = torch.tensor([[HEAD, 0, 9], [HEAD, 1, 6]])
QUERIES = [Query((HEAD, 0, 9)), Query((HEAD, 1, 6))]
A, B, C = (HEAD, 0, 3), (7, 1, HEAD), (HEAD, 0, 5)
Triples = set[tuple[int, ...]]


def rows(*facts: tuple[int, int, int]) -> list[int]:
    return rows_of(TRAIN, torch.tensor(facts))


class Trainings:
    """Remembers what it is asked to train on; ranks are those of `ranks`, given what is missing, and the seed."""

    about: Mapping[str, Any] = {"model": "none"}

    def __init__(self, ranks: Callable[[Triples, int], Sequence[float]]) -> None:
        self.ranks = ranks
        self.asked: list[tuple[Triples, int]] = []

    def __call__(
        self, train: torch.Tensor, seed: int, on_progress: Callable[[float], None]
    ) -> Sequence[Outcome]:
        left = {tuple(row) for row in train.tolist()}
        missing = {tuple(row) for row in TRAIN.tolist()} - left
        self.asked.append((missing, seed))
        return [Outcome(0.0, 0.5, rank, 1.0) for rank in self.ranks(missing, seed)]


def worse_by_each(missing: Triples, seed: int) -> list[float]:
    return [float(1 + len(missing) + (seed == 9))] * len(PREDICTIONS)


def verify(trainings: Trainings, path: Path, sets: Sequence[list[int]], **how: Any) -> Verified:
    predictions = PREDICTIONS[-len(sets) :]
    return verified(Journal(path, TRAIN, predictions, trainings), QUERIES[-len(sets) :], sets, **how)


def test_all_sets_go_at_once_and_controls_have_the_same_seeds(tmp_path: Path) -> None:
    trainings, path, sets = Trainings(worse_by_each), tmp_path / "journal", [rows(A, B), rows(A)]
    found = verify(trainings, path, sets, seed=7, seeds=2)
    assert [seed for _, seed in trainings.asked] == [8, 9] * 3
    missing = [gone for gone, _ in trainings.asked]
    assert missing[0] == missing[1] == {A, B}
    assert missing[4] == missing[5] == set()
    assert missing[2] == missing[3] and 2 <= len(missing[2]) <= 3
    for fact in missing[2]:
        assert {HEAD, *PREDICTIONS[:, 2].tolist()} & {fact[0], fact[2]}
    assert found.ranks == {SETS: [[3, 3], [4, 4]], RANDOM: found.ranks[RANDOM], ALL: [[1, 1], [2, 2]]}
    assert found.mrr(ALL) == [1, 0.5] and found.hits_at_1(ALL) == [1, 0] and found.rank(SETS, 1) == 3.5
    assert found.metrics()["mrr_retrained"] == pytest.approx((1 / 3 + 1 / 4) / 2)
    told = found.sentence()
    assert "MRR 0.29 and hits@1 0.00 without the 2 triples of the sets" in told
    assert "MRR 0.75 ± 0.25 and hits@1 0.50 with all triples, which is noise" in told
    assert "put back" not in told
    again = Trainings(worse_by_each)
    assert verify(again, path, sets, seed=7, seeds=2) == found
    assert again.asked == [], "finished ones are not repeated"


def test_a_random_fact_is_never_the_prediction_itself(tmp_path: Path) -> None:
    for seed in range(20):
        trainings = Trainings(lambda missing, seed: [1.0])
        found = verify(trainings, tmp_path / f"{seed}", [rows(A)], seed=seed)
        assert found.changed[RANDOM] == 1
        assert all((HEAD, 1, 6) not in missing for missing, _ in trainings.asked)


def test_one_fact_of_each_set_is_put_back_when_asked(tmp_path: Path) -> None:
    trainings = Trainings(worse_by_each)
    found = verify(trainings, tmp_path / "journal", [rows(A, B), rows(C)], seed=3, puts_back=True)
    assert found.changed[SETS] == 3 and found.changed[FEWER] == 1
    assert trainings.asked[2][0] in ({A}, {B}), "the only fact of the other set is back"
    assert "MRR 0.50 and hits@1 0.00 with one triple of each set put back" in found.sentence()
    assert found.metrics()["mrr_retrained_put_back"] == 0.5


def grown(
    folder: Path, ranks: Callable[[Triples, int], Sequence[float]], **how: Any
) -> tuple[tuple[list[int | None], int], Trainings]:
    trainings = Trainings(ranks)
    journal = Journal(folder / "journal", TRAIN, PREDICTIONS, trainings)
    return smallest(journal, QUERIES, [rows(A, B), rows(C, A)], [1.0, 1.0], seed=7, **how), trainings


def test_sets_grow_until_the_prediction_is_lost_and_no_further(tmp_path: Path) -> None:
    def ranks(missing: Triples, seed: int) -> list[float]:
        return [2.0 if B in missing else 1.0, 3.0 if C in missing else 1.0]

    (sizes, rounds), trainings = grown(tmp_path, ranks, seeds=2)
    assert sizes == [2, 1] and rounds == 6
    gone = [missing for missing, _ in trainings.asked]
    assert gone == [*[set()] * 4, {A, C}, {A, C}, {A, B, C}, {A, B, C}], "what lost the second stays away"
    assert [seed for _, seed in trainings.asked] == [8, 9, 10, 11, 10, 11, 10, 11], (
        "those that verify have other seeds"
    )


def test_a_rank_that_noise_alone_reaches_is_no_loss(tmp_path: Path) -> None:
    (sizes, _), _ = grown(tmp_path, lambda missing, seed: [2.0, 2.0 + (B in missing)])
    assert sizes == [None, 2]


def test_a_rank_that_a_seed_alone_reaches_is_no_loss(tmp_path: Path) -> None:
    (sizes, _), _ = grown(tmp_path, lambda missing, seed: [2.0 if seed == 9 else 1.0, 1.0 + len(missing)])
    assert sizes == [None, 1]
