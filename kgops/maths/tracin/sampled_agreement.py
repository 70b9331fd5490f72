"""Measures how approximate TracIn scores differ from exact ones, on a sample of the run's pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from kgops.jobs import events
from kgops.maths.tracin.agreement import Agreement, compare
from kgops.maths.tracin.attribution import Scoring
from kgops.maths.tracin.models import facts_of
from kgops.maths.tracin.scan import AllScores
from kgops.maths.worker.report import Reporter

MOST_TESTS = 16
MOST_TRAINS = 20_000
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
    exact = replace(settings, precision=None, gram_dtype=None, projection_dim=None)
    variants: list[tuple[str, str, Scoring]] = []
    if settings.precision is not None or settings.gram_dtype is not None:
        plain = replace(scoring, settings=replace(exact, projection_dim=settings.projection_dim))
        formats = [str(f).removeprefix("torch.") for f in (settings.precision, settings.gram_dtype) if f]
        variants.append(("precision", f"{' and '.join(dict.fromkeys(formats))} beside float32", plain))
    if settings.projection_dim is not None:
        what = f"projected to {settings.projection_dim} numbers beside not projected"
        variants.append(("projection", what, replace(scoring, settings=exact)))
    if scoring.names is not None:
        everything = replace(scoring, settings=exact, names=None)
        variants.append(("last_layers", "these layers alone beside all of them", everything))
    if not variants:
        return {}
    draw = torch.Generator().manual_seed(seed)
    some = train[torch.randperm(len(train), generator=draw)[:MOST_TRAINS]]
    some_tests = tests[torch.linspace(0, len(tests) - 1, min(MOST_TESTS, len(tests))).long()]
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
        for one in _measured(name, what, agreement):
            report.send(events.MEASURED, **one)
    return metrics


def _scores(
    scoring: Scoring, train: torch.Tensor, tests: torch.Tensor, stop: Callable[[], bool]
) -> torch.Tensor:
    sink = AllScores(len(tests), len(train), like=facts_of(scoring.checkpoints[0].model).like)
    scoring(train, tests, sink, None, stop)
    return sink.scores


def _measured(name: str, what: str, agreement: Agreement) -> Sequence[dict[str, object]]:
    shared = {"subject": what, "n": agreement.tests}
    shares = [
        {
            "name": f"tracin {name}: share of top {k}",
            "value": share,
            "low": agreement.worst[k],
            "unit": "share",
        }
        for k, share in agreement.top.items()
    ]
    error = {
        "name": f"tracin {name}: largest error",
        "value": agreement.largest_error,
        "unit": "of the largest score",
    }
    return [{**shared, **one} for one in (*shares, error)]
