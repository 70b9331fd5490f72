"""Compares approximate TracIn scores with exact ones, on a sample of a run's pairs.

The score error itself tells little: with errors within 1 % of the largest score, a quarter of the top 50 may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from kgops.maths.tracin.scan import AllScores, Scoring
from kgops.maths.worker.report import Reporter
from kgops.workloads.tracin.options import TRACIN_AGREEMENT_TESTS, TRACIN_AGREEMENT_TRAINS

TOPS = (10, 50, 100)


@dataclass(frozen=True)
class Agreement:
    """`top[k]`: share of the exact top k that the approximate scores find, mean over test triples. A k of more than
    half the training triples is left out."""

    tests: int
    trains: int
    largest_error: float  # in units of the test triple's largest exact score
    mean_error: float
    top: dict[int, float]
    spearman: float

    def metrics(self, prefix: str) -> dict[str, float]:
        metrics = {
            f"{prefix}_largest_error": self.largest_error,
            f"{prefix}_mean_error": self.mean_error,
            f"{prefix}_spearman": self.spearman,
        }
        return metrics | {f"{prefix}_top{k}": share for k, share in self.top.items()}

    def sentence(self) -> str:
        shares = ", ".join(f"{share:.1%} of the top {k}" for k, share in self.top.items())
        agreed = f"{shares} agree" if shares else "too few training triples to compare the top ones"
        return (
            f"on {self.tests} test x {self.trains:,} training triples {agreed}; scores differ by at most "
            f"{self.largest_error:.2g} of the largest, {self.mean_error:.2g} on average."
        )


def compare(exact: torch.Tensor, other: torch.Tensor) -> Agreement:
    """Both (tests, trains)."""
    exact, other = exact.double().cpu(), other.double().cpu()
    largest = exact.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    error = (other - exact).abs() / largest
    tests, trains = exact.shape
    shares = {k: _shared_top(exact, other, k) for k in TOPS if 2 * k <= trains}
    return Agreement(
        tests,
        trains,
        float(error.max()),
        float(error.mean()),
        {k: float(share.mean()) for k, share in shares.items()},
        float(_rank_correlation(exact, other).mean()),
    )


def _shared_top(exact: torch.Tensor, other: torch.Tensor, k: int) -> torch.Tensor:
    """By absolute score, as results are sorted. Equal scores count as agreement."""
    exact, other = exact.abs(), other.abs()
    at_least = exact.topk(k, dim=1).values[:, -1:]
    indices = other.topk(k, dim=1).indices
    return (exact.gather(1, indices) >= at_least).double().mean(1)


def _rank_correlation(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Spearman's rank correlation of each row; equal scores share their mean rank."""
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    norms = (x.norm(dim=1) * y.norm(dim=1)).clamp_min(torch.finfo(torch.float64).tiny)
    correlation: torch.Tensor = (x * y).sum(1) / norms
    return correlation


def _ranks(scores: torch.Tensor) -> torch.Tensor:
    rows = []
    for row in scores:
        _, group, counts = torch.unique(row, return_inverse=True, return_counts=True)
        last = counts.cumsum(0).double()
        rows.append((last - (counts - 1) / 2)[group])
    return torch.stack(rows)


ACCEPTED_ERROR = 0.01  # of the largest score: what the group's guide expects of FP16


def report_agreement(
    scoring: Scoring,
    train: torch.Tensor,
    tests: torch.Tensor,
    seed: int,
    report: Reporter,
    stop: Callable[[], bool],
) -> dict[str, float]:
    """Compares each option that changes scores with exact scores; empty if none does."""
    settings = scoring.settings
    exact = replace(settings, precision=None)
    variants: list[tuple[str, str, Scoring]] = []
    if settings.precision is not None:
        plain = replace(scoring, settings=exact)
        low = str(settings.precision).removeprefix("torch.")
        variants.append(("precision", f"{low} beside float32", plain))
    if scoring.names is not None:
        everything = replace(scoring, settings=exact, names=None)
        variants.append(("last_layers", "these layers alone beside all of them", everything))
    if not variants:
        return {}
    draw = torch.Generator().manual_seed(seed)
    some = train[torch.randperm(len(train), generator=draw)[:TRACIN_AGREEMENT_TRAINS]]
    some_tests = tests[torch.linspace(0, len(tests) - 1, min(TRACIN_AGREEMENT_TESTS, len(tests))).long()]
    ours = _scores(scoring, some, some_tests, stop)
    metrics: dict[str, float] = {}
    for name, what, exact_variant in variants:
        agreement = compare(_scores(exact_variant, some, some_tests, stop), ours)
        report.note(f"{what}, {agreement.sentence()}")
        if name == "precision" and not agreement.largest_error <= ACCEPTED_ERROR:  # NaN, too
            report.note(
                f"the largest error is more than {ACCEPTED_ERROR:.0%} of the largest score; "
                "`--precision fp32` computes exact scores."
            )
        metrics |= agreement.metrics(name)
    return metrics


def _scores(
    scoring: Scoring, train: torch.Tensor, tests: torch.Tensor, stop: Callable[[], bool]
) -> torch.Tensor:
    sink = AllScores(len(tests), len(train))
    scoring(train, tests, sink, None, stop)
    return sink.scores
