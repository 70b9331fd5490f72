"""Factored scores beside one backward pass for each triple, over shapes, losses and layers."""

from typing import Any

import pytest
import sequential_tracin
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kgops.maths.models.build import build_model
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin import factors
from kgops.maths.tracin.encoder import Encoder
from kgops.maths.tracin.factors import Factors, factors_of
from kgops.maths.tracin.loss import ONE_TO_N, TARGET, KnownTails, TracinLoss
from kgops.maths.tracin.products import pair_scores, self_scores
from kgops.workloads.train.models import ConvEConfig, ModelConfig, VectorConfig

# Heads, relations and tails occur again within and across the two blocks, and as each other.
TRAIN = torch.tensor(
    [[0, 1, 2], [0, 1, 3], [0, 1, 2], [5, 0, 1], [2, 3, 0], [1, 1, 5], [4, 2, 4], [7, 0, 6], [6, 3, 2]]
)
TEST = torch.tensor([[0, 1, 2], [2, 1, 3], [0, 1, 7], [6, 0, 0], [4, 2, 4], [0, 3, 2]])

SHARED = torch.tensor([[0, 1, 2], [0, 1, 3], [0, 1, 0], [0, 1, 5], [2, 3, 0], [2, 3, 1]])


def warm(config: ModelConfig, seed: int = 3) -> Any:
    """A model in evaluation whose norms and biases are not at their initial values."""
    torch.manual_seed(seed)
    model = build_model(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.train()
    rows = torch.arange(20)
    for _ in range(3):
        model.encode(rows % config.num_entities, rows % config.relation_rows)
    return model.eval()


def losses(config: ModelConfig) -> dict[str, TracinLoss]:
    known = KnownTails(TRAIN, config.relation_rows)
    return {
        "target": TARGET,
        "one-to-n": ONE_TO_N,
        "smoothed": TracinLoss("bce", 0.1),
        "softmax": TracinLoss("softmax", 0.1),
        "kvsall-bce": TracinLoss("bce", 0.2, known),
        "kvsall-ce": TracinLoss("softmax", 0.1, known),
    }


def factored(
    model: ConvE,
    loss: TracinLoss,
    train: torch.Tensor,
    test: torch.Tensor,
    names: frozenset[str] | None = None,
) -> torch.Tensor:
    encoder = Encoder(model, names, rows_at_once=4)
    kept = factors_of(encoder, loss, test, chunk=5, keep=True)
    others = kept.as_other_side(5, model.config.num_entities)
    made = factors_of(encoder, loss, train, chunk=5, others=others)
    return pair_scores(encoder, made, kept).t()


def off(scores: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest error, as a share of the largest score."""
    return float((scores.double() - truth).abs().max() / truth.abs().max())


configs = st.builds(
    ConvEConfig,
    num_entities=st.integers(8, 30),
    num_relations=st.just(2),
    inverse=st.just(True),
    embedding_dim=st.just(24),
    input_channels=st.sampled_from([1, 2, 3]),
    embedding_height=st.sampled_from([2, 4]),
    output_channels=st.integers(1, 4),
    kernel_height=st.integers(1, 3),
    kernel_width=st.integers(1, 2),
    batch_norm=st.booleans(),
)


vector_configs = st.builds(
    VectorConfig,
    num_entities=st.integers(8, 30),
    num_relations=st.just(2),
    rank=st.integers(1, 9),
    model=st.sampled_from(["ComplEx", "DistMult"]),
)


@settings(max_examples=25, deadline=None)
@given(config=configs, name=st.sampled_from(sorted(losses(ConvEConfig(8, 2, embedding_dim=24)))))
def test_factored_scores_are_the_sequential_ones_in_float64_and_nearer_than_they_in_float32(
    config: ConvEConfig, name: str
) -> None:
    model, loss = warm(config), losses(config)[name]
    truth = sequential_tracin.influence([(model, 1.0)], loss, TRAIN, TEST)
    assert off(factored(model, loss, TRAIN, TEST), truth) < 1e-10
    one = factored(model, loss, SHARED, TEST[:1])  # few enough for tangents
    assert off(one, sequential_tracin.influence([(model, 1.0)], loss, SHARED, TEST[:1])) < 1e-10
    assert off(factored(model.float(), loss, TRAIN, TEST), truth) < 5e-6


def test_self_influence_is_the_squared_gradient() -> None:
    config = ConvEConfig(9, 2, embedding_dim=12)
    model = warm(config)
    for loss in losses(config).values():
        encoder = Encoder(model)
        block: Factors = factors_of(encoder, loss, TRAIN, chunk=4, keep=True)
        truth = sequential_tracin.self_influence([(model, 1.0)], loss, TRAIN)
        assert off(self_scores(encoder, block), truth) < 1e-10


@pytest.mark.parametrize("name", ["target", "one-to-n"])
def test_every_parameter_alone_gives_its_own_part_of_the_sum(name: str) -> None:
    config = ConvEConfig(9, 2, embedding_dim=12, input_channels=2, embedding_height=2, output_channels=3)
    model, loss = warm(config), losses(config)[name]
    largest = sequential_tracin.influence([(model, 1.0)], loss, TRAIN, TEST).abs().max()
    for parameter, _ in model.named_parameters():
        names = frozenset({parameter})
        for train, test in ((TRAIN, TEST), (SHARED, TEST[:1])):
            truth = sequential_tracin.influence([(model, 1.0)], loss, train, test, names)
            error = (factored(model, loss, train, test, names) - truth).abs().max()
            assert error < 1e-10 * largest, parameter


@pytest.mark.parametrize("loss", ["target", "one-to-n", "softmax", "kvsall-bce", "kvsall-ce"])
def test_queries_that_are_added_for_round_numbers_change_no_score(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where oneDNN multiplies: see `rounded_rows`."""
    model = warm(ConvEConfig(8, 4, embedding_dim=6, embedding_height=2, output_channels=3)).float()
    known = losses(model.config)[loss]
    encoder = Encoder(model, rows_at_once=4)
    kept = factors_of(encoder, known, TEST, chunk=5, keep=True)
    others = kept.as_other_side(5, 8)
    as_found = pair_scores(encoder, factors_of(encoder, known, TRAIN, chunk=5, others=others), kept)
    monkeypatch.setattr(factors, "rounded_rows", lambda rows: rows + 3)
    made = factors_of(encoder, known, TRAIN, chunk=5, others=others, rounded=True)
    assert len(made.heads) == len(torch.unique(TRAIN[:, :2], dim=0)) + 3
    torch.testing.assert_close(pair_scores(encoder, made, kept), as_found, rtol=1e-5, atol=1e-6)
    own, as_rounded = (
        self_scores(encoder, factors_of(encoder, known, TRAIN, chunk=5, keep=True, rounded=rounded))
        for rounded in (False, True)
    )
    torch.testing.assert_close(as_rounded, own, rtol=1e-5, atol=1e-6)
