"""Lower precision and fewer layers: what they cost is measured by which triples are found."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kgops.models.conve import ConvE, ConvEConfig
from kgops.tracin.agreement import compare
from kgops.tracin.blocks import Settings, TracinCheckpoint
from kgops.tracin.loss import ONE_TO_N, TARGET, TracinLoss
from kgops.tracin.low_precision import product
from kgops.tracin.scan import AllScores, scan


def a_model(dtype: torch.dtype = torch.float32) -> ConvE:
    torch.manual_seed(0)
    config = ConvEConfig(
        60, 5, inverse=True, embedding_dim=24, embedding_height=4, embedding_width=6, output_channels=4
    )
    return ConvE(config).to(dtype).eval()


def triples(many: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    columns = [torch.randint(n, (many,), generator=draw) for n in (60, 5, 60)]
    return torch.stack(columns, dim=1)


def scores(model: ConvE, loss: TracinLoss, settings: Settings) -> torch.Tensor:
    train, tests = triples(300, 1), triples(9, 2)
    sink = AllScores(len(tests), len(train), like=model.entities)
    scan([TracinCheckpoint(model, 0.1)], loss, train, tests, sink, settings=settings)
    return sink.scores


def test_agreement_is_by_hand_what_it_says() -> None:
    exact = torch.arange(1.0, 41.0)[None]
    swapped = exact.clone()
    swapped[0, [29, 30]] = exact[0, [30, 29]]  # ranks 10 and 11 from the top change places
    found = compare(exact, swapped)
    assert (found.tests, found.trains) == (1, 40)
    assert found.top == {10: 0.9}
    assert found.worst == {10: 0.9}
    assert found.largest_error == pytest.approx(1 / 40)
    assert found.spearman == pytest.approx(1 - 6 * 2 / (40 * (40**2 - 1)))


def test_agreement_with_itself_is_whole_ties_or_not_and_the_sign_counts_for_nothing_but_order() -> None:
    exact = torch.tensor([[1.0, -1.0, 1.0, 0.0] * 10, [0.0] * 40])
    found = compare(exact, exact)
    assert found.top == {10: 1.0} and found.largest_error == 0


def test_worst_test_triple_is_told_beside_the_average() -> None:
    exact = torch.arange(1.0, 41.0).repeat(2, 1)
    other = exact.clone()
    other[1] = other[1].flip(0)
    found = compare(exact, other)
    assert found.top == {10: 0.5} and found.worst == {10: 0.0}


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_product_rounds_its_factors_and_not_its_sums(low: torch.dtype) -> None:
    a, b = torch.randn(7, 2000), torch.randn(2000, 5)
    rounded = a.to(low).double() @ b.to(low).double()
    # One rounding of the result at most, where the CPU sums in float32 and answers in the short format.
    torch.testing.assert_close(product(a, b, low).double(), rounded, rtol=2 * torch.finfo(low).eps, atol=0.05)
    assert torch.equal(product(a, b, None), a @ b)


@pytest.mark.parametrize("loss", [TARGET, ONE_TO_N, TracinLoss("softmax", 0.1)])
def test_rounding_only_the_two_large_products_leaves_scores_within_a_percent(loss: TracinLoss) -> None:
    model = a_model()
    exact = scores(a_model(torch.float64), loss, Settings(block=64))
    low = compare(exact, scores(model, loss, Settings(block=64, gram_dtype=torch.bfloat16)))
    full = compare(exact, scores(model, loss, Settings(block=64, precision=torch.bfloat16)))
    plain = compare(exact, scores(model, loss, Settings(block=64)))
    assert plain.largest_error < 5e-6
    assert plain.largest_error < low.largest_error < 0.01
    # A rounded score may fall on the other side of a ReLU, so only the average is bounded.
    assert plain.mean_error < full.mean_error < 0.01
    assert low.spearman > 0.999


def test_rounded_scores_do_not_depend_on_the_block() -> None:
    settings = Settings(block=300, gram_dtype=torch.bfloat16, precision=torch.bfloat16)
    whole = scores(a_model(), ONE_TO_N, settings)
    cut = scores(a_model(), ONE_TO_N, replace(settings, block=37))
    assert compare(whole, cut).largest_error < 0.01


def test_many_entities_do_not_overflow_fp16() -> None:
    torch.manual_seed(1)
    config = ConvEConfig(
        70_000, 2, inverse=False, embedding_dim=12, embedding_height=3, embedding_width=4, output_channels=2
    )
    model = ConvE(config).eval()
    train, tests = torch.tensor([[1, 0, 2], [69_999, 1, 5]]), torch.tensor([[1, 1, 3]])
    sink = AllScores(1, 2, like=model.entities)
    settings = Settings(gram_dtype=torch.float16, precision=torch.float16)
    scan([TracinCheckpoint(model, 1.0)], ONE_TO_N, train, tests, sink, settings=settings)
    assert bool(torch.isfinite(sink.scores).all()) and bool(sink.scores.any())
