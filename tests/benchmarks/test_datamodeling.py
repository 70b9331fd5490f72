"""The linear datamodeling score: rank correlations of what subsets' models do with what scores predict."""

from __future__ import annotations

import pytest
import torch

from benchmarks.datamodeling import Subsets, spearman


def test_a_score_that_orders_the_subsets_is_one_and_its_negative_minus_one() -> None:
    draw = torch.Generator().manual_seed(1)
    chosen = torch.rand(12, 60, generator=draw) < 0.5
    scores = torch.randn(4, 60, generator=draw).double()
    subsets = Subsets(chosen, {"logit": scores @ chosen.double().t() + 3})
    assert subsets.score(scores)["logit"].mean == pytest.approx(1)
    assert subsets.score(scores)["logit"].interval == pytest.approx((1, 1))
    assert subsets.score(-scores)["logit"].mean == pytest.approx(-1)


def test_rank_correlation_is_scipys_ties_included() -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = torch.Generator().manual_seed(0)
    for n in (3, 8, 21):
        a, b = (torch.randint(5, (6, n), generator=draw).double() for _ in range(2))
        a[:, 0], b[:, 0] = 9, 9
        truth = [stats.spearmanr(x, y).statistic for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        torch.testing.assert_close(spearman(a, b), torch.tensor(truth, dtype=torch.float64))
    assert torch.isnan(spearman(torch.ones(1, 4), torch.arange(4.0)[None])).all()
