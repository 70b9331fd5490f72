"""The linear datamodeling score is a rank correlation."""

from __future__ import annotations

import pytest
import torch

from benchmarks.lds import spearman


def test_rank_correlation_is_scipys_ties_included() -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = torch.Generator().manual_seed(0)
    for n in (3, 8, 21):
        a, b = (torch.randint(5, (6, n), generator=draw).double() for _ in range(2))
        a[:, 0], b[:, 0] = 9, 9
        truth = [stats.spearmanr(x, y).statistic for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        torch.testing.assert_close(spearman(a, b), torch.tensor(truth, dtype=torch.float64))
    assert torch.isnan(spearman(torch.ones(1, 4), torch.arange(4.0)[None])).all()
