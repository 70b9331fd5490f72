"""Scanning a training set: tiles, blocks and checkpoints change nothing, and ties go by id."""

from dataclasses import replace

import pytest
import sequential_tracin
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kgops.errors import BadInput
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.loss import ONE_TO_N, TARGET, TracinLoss, trained_loss
from kgops.maths.tracin.models import last_layers
from kgops.maths.tracin.results import Ranking, TopK
from kgops.maths.tracin.scan import AllScores, Scoring, TopTriples
from kgops.maths.train.batches import inverse_triples, query_rows
from kgops.workloads.train.models import ConvEConfig

CONFIG = ConvEConfig(12, 3, embedding_dim=12, output_channels=3)
SMALL = Settings(block=7, chunk=5, tests_at_once=2)


def some_points(count: int = 2) -> list[TracinCheckpoint]:
    torch.manual_seed(1)
    return [TracinCheckpoint(ConvE(CONFIG).double().eval(), 0.1 * (i + 1)) for i in range(count)]


def some_triples(count: int, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(n, (count,), generator=g) for n in (12, 3, 12)], dim=1)


def plain(
    points: list[TracinCheckpoint], loss: TracinLoss, train: torch.Tensor, tests: torch.Tensor
) -> torch.Tensor:
    pairs = [(point.model, point.learning_rate) for point in points]
    return sequential_tracin.influence(pairs, loss, query_rows(train, True), query_rows(tests, True))


def all_scores(
    points: list[TracinCheckpoint], loss: TracinLoss, train: torch.Tensor, tests: torch.Tensor, how: Settings
) -> torch.Tensor:
    sink = AllScores(len(tests), len(train))
    Scoring(points, loss, how)(train, tests, sink)
    return sink.scores


TRAIN, TESTS = some_triples(30, 0), some_triples(5, 1)


@pytest.mark.parametrize("loss", [TARGET, ONE_TO_N])
def test_scores_are_the_weighted_sum_over_checkpoints_whatever_the_blocks(loss: TracinLoss) -> None:
    points = some_points()
    truth = plain(points, loss, TRAIN, TESTS)
    for how in (SMALL, Settings(), replace(SMALL, block=1, tests_at_once=1)):
        torch.testing.assert_close(all_scores(points, loss, TRAIN, TESTS, how), truth, rtol=0, atol=1e-12)


def test_both_directions_add_the_gradients_of_a_triple_and_its_inverse() -> None:
    points = some_points(1)
    how = replace(SMALL, both_directions=True)
    rows = [torch.cat([query_rows(t, True), inverse_triples(t)]) for t in (TRAIN, TESTS)]
    pairs = sequential_tracin.influence([(points[0].model, 0.1)], ONE_TO_N, rows[0], rows[1])
    truth = pairs.view(2, len(TESTS), 2, len(TRAIN)).sum((0, 2))
    torch.testing.assert_close(all_scores(points, ONE_TO_N, TRAIN, TESTS, how), truth, rtol=0, atol=1e-12)
    own = Scoring(points, ONE_TO_N, how).self_influence(TESTS)
    again = all_scores(points, ONE_TO_N, TESTS, TESTS, how).diagonal()
    torch.testing.assert_close(own, again, rtol=0, atol=1e-12)


def test_top_triples_are_the_head_and_the_foot_of_all_scores() -> None:
    points = some_points()
    scores = all_scores(points, ONE_TO_N, TRAIN, TESTS, SMALL)
    top = TopTriples(4, merge_columns=10)
    Scoring(points, ONE_TO_N, SMALL)(TRAIN, TESTS, top)
    order = scores.argsort(dim=1, descending=True, stable=True)
    assert torch.equal(top.proponents[1], order[:, :4])
    lowest = scores.argsort(dim=1, stable=True)[:, :4]
    assert torch.equal(top.opponents[1], lowest)
    torch.testing.assert_close(top.opponents[0], scores.gather(1, lowest))


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    k=st.integers(1, 8),
    seed=st.integers(0, 99),
    size=st.integers(1, 9),
)
def test_ranking_does_not_depend_on_the_order_of_blocks_even_when_scores_tie(
    values: list[int], k: int, seed: int, size: int
) -> None:
    scores = torch.tensor([values], dtype=torch.float32)
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    parts = [Ranking(1, k, like=scores) for _ in range(4)]
    for number, ids in enumerate(torch.split(order, size)):
        parts[number % 4].add(scores[:, ids], ids)
    parts[0].merge(parts[1])
    parts[0].merge(*parts[2:])
    expected = sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]
    assert parts[0].ids[0].tolist() == expected


@pytest.mark.parametrize("k", [1, 7, 100, 600])
@pytest.mark.parametrize("levels", [5, 400, 10**9])
def test_the_strongest_of_many_blocks_are_those_of_a_sort(k: int, levels: int) -> None:
    draw = torch.Generator().manual_seed(k + levels)
    scores = torch.randint(-levels, levels, (9, 3000), generator=draw).double()
    scores[0, 5], scores[1, 2500], scores[2, ::7] = torch.nan, torch.inf, -torch.inf
    order = torch.randperm(3000, generator=draw)
    ours = TopK(9, k, like=scores)
    for ids in torch.split(order, [4, 1, 700, 1500, 300, 495]):
        ours.add(scores[:, ids], ids)
    highest = scores.argsort(dim=1, descending=True, stable=True)[:, :k]
    assert torch.equal(ours.proponents.ids, highest)
    lowest = scores.neg().argsort(dim=1, descending=True, stable=True)[:, :k]
    assert torch.equal(ours.opponents.ids, lowest)
    torch.testing.assert_close(ours.opponents.scores, scores.gather(1, lowest), equal_nan=True)


def test_self_influence_is_each_triple_with_itself_in_the_order_given() -> None:
    points = some_points()
    own = Scoring(points, ONE_TO_N, SMALL).self_influence(TRAIN)
    torch.testing.assert_close(own, plain(points, ONE_TO_N, TRAIN, TRAIN).diagonal(), rtol=0, atol=1e-12)


def test_last_layers_are_counted_from_the_end_as_pykeen_lists_them() -> None:
    model = some_points(1)[0].model
    assert last_layers(model, 1) == {"output_norm.weight", "output_norm.bias"}
    assert last_layers(model, 2) == last_layers(model, 1) | {"project.weight", "project.bias"}


def test_trained_loss_is_the_one_the_checkpoint_records() -> None:
    rows = query_rows(TRAIN, True)
    loss = trained_loss({"name": "kvsall-ce", "label_smoothing": 0.1}, rows, CONFIG.relation_rows)
    assert (loss.kind, loss.smoothing) == ("softmax", 0.1)
    points = some_points(1)
    scores = all_scores(points, loss, TRAIN, TESTS, SMALL)
    torch.testing.assert_close(scores, plain(points, loss, TRAIN, TESTS), rtol=0, atol=1e-12)
    assert trained_loss({"name": "1vsall-bce"}, rows, CONFIG.relation_rows).known is None
    smoothed = {"name": "kvsall-bce", "label_smoothing": 0.1}
    over_all = trained_loss({**smoothed, "smoothed_over": "all entities"}, rows, CONFIG.relation_rows)
    assert over_all.targets(10) == pytest.approx((0.01, 0.91))  # ε / K and 1 - ε + ε / K
    as_pykeen = trained_loss(smoothed, rows, CONFIG.relation_rows)
    assert as_pykeen.targets(11) == pytest.approx((0.01, 0.9))
    with pytest.raises(BadInput, match="margin"):
        trained_loss({"name": "margin"}, rows, CONFIG.relation_rows)
