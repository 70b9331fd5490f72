"""Linear datamodeling score (Park et al. 2023, TRAK): do summed influences predict a retrained model's outputs?

Models are trained on random subsets of the training triples. For each test triple, the sum of its influences over
a subset predicts the output of that subset's model. The score is the rank correlation of predicted and measured
outputs over the subsets: 1 is a perfect order, 0 none.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.graphs.triples import Graph
from kgops.tracin.journal import Journal, Retraining
from kgops.tracin.mean_and_iqr import Spread
from kgops.tracin.retraining import Retrain
from kgops.training.reporter import Report

__all__ = ["OUTPUTS", "Datamodeling", "Subsets", "spearman", "train_on_subsets"]

# Measured outputs, and the sign of the change that more influence should cause.
OUTPUTS = {"margin": 1.0, "logit": 1.0, "loss": -1.0}
_SHUFFLES = 1000
_DRAWN_AGAIN = 200


@dataclass(frozen=True)
class Correlations:
    """Rank correlations of one output, one for each test triple; NaN where all subsets gave equal values.

    `chance`: 95 % quantile of the absolute mean correlation under random orders of the subsets (None where nothing
    varies). `repeatable`: correlations between the measurements of two seeds, empty with one seed; a perfect
    prediction of the mean over seeds reaches about their square root. `interval`: of the mean, 95 %, by drawing tests
    and subsets again (bootstrap).
    """

    by_test: tuple[float, ...]
    interval: tuple[float, float] | None
    chance: float | None
    repeatable: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "score": Spread.of(self.by_test).to_dict(),
            "interval": None if self.interval is None else list(self.interval),
            "by_test": list(self.by_test),
            "chance": self.chance,
            "repeatable": Spread.of(self.repeatable).to_dict(),
        }


@dataclass(frozen=True)
class Datamodeling:
    """The linear datamodeling score by output, and how it was measured."""

    subsets: int
    seeds: int
    alpha: float
    tests: tuple[tuple[int, int, int], ...]
    outputs: dict[str, Correlations]

    def score(self, output: str = "margin") -> Spread:
        """Over the test triples."""
        return Spread.of(self.outputs[output].by_test)

    def main_metrics(self) -> dict[str, float]:
        """The few that a run shows; `to_dict` has all."""
        return {
            name: value for name, value in self.metrics().items() if name in ("lds_logit", "lds_logit_chance")
        }

    def sentence(self, output: str = "logit") -> str:
        found, mean = self.outputs[output], self.score(output).mean
        if mean is None or found.chance is None:
            return f"linear datamodeling score: n/a, the {output}s of all subsets are equal."
        between = (
            "" if found.interval is None else f" (95 %: {found.interval[0]:+.2f} to {found.interval[1]:+.2f})"
        )
        verdict = "better than chance" if mean > found.chance else "not better than chance"
        return (
            f"linear datamodeling score of the {output}: {mean:+.2f}{between} over {self.subsets} trainings on random "
            f"subsets, {verdict} (chance: up to {found.chance:.2f})."
        )

    def metrics(self) -> dict[str, float]:
        metrics: dict[str, float | None] = {"subsets": float(self.subsets)}
        for output, correlations in self.outputs.items():
            metrics[f"lds_{output}"] = self.score(output).mean
            metrics[f"lds_{output}_chance"] = correlations.chance
            metrics[f"lds_{output}_repeatable"] = Spread.of(correlations.repeatable).mean
        return {name: value for name, value in metrics.items() if value is not None}

    def measurements(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        name, unit = "tracin linear datamodeling score", "rank correlation"
        for output, correlations in self.outputs.items():
            entries += self.score(output).measurement(name, output, None, unit)
            chance = Spread(correlations.chance, None, None, None, _SHUFFLES)
            entries += chance.measurement(name, f"{output}, exceeded by chance 1 in 20", None, unit)
            repeatable = Spread.of(correlations.repeatable)
            entries += repeatable.measurement(name, f"{output}, measured again", None, unit)
        return entries

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "subsets": self.subsets,
            "seeds": self.seeds,
            "alpha": self.alpha,
            "tests": [list(triple) for triple in self.tests],
            "metrics": self.metrics(),
            "outputs": {name: correlations.to_dict() for name, correlations in self.outputs.items()},
        }


@dataclass(frozen=True)
class Subsets:
    """Random subsets of the training triples, and what models trained on each of them make of the tests.

    `chosen` (subsets, trains) of bool; `measured` by output: (seeds, tests, subsets). Any scores can be compared on
    the outcomes of the same trainings.
    """

    tests: torch.Tensor
    alpha: float
    chosen: torch.Tensor
    measured: dict[str, torch.Tensor]

    def predicted(self, scores: torch.Tensor) -> torch.Tensor:
        """(tests, subsets): the sum of each test's scores over each subset; `scores` (tests, trains)."""
        if scores.shape != (len(self.tests), self.chosen.shape[1]):
            raise ValueError(f"scores are {tuple(scores.shape)}, not (tests, trains)")
        return scores.detach().cpu().double() @ self.chosen.double().t()

    def score(self, scores: torch.Tensor) -> Datamodeling:
        predicted = self.predicted(scores)
        outputs = {name: _correlate(predicted, measured) for name, measured in self.measured.items()}
        triples = tuple((int(h), int(r), int(t)) for h, r, t in self.tests.tolist())
        seeds = len(next(iter(self.measured.values())))
        return Datamodeling(len(self.chosen), seeds, self.alpha, triples, outputs)


def train_on_subsets(
    graph: Graph,
    tests: torch.Tensor,
    retrain: Retrain,
    journal: Path,
    *,
    seed: int,
    subsets: int = 20,
    seeds: int = 1,
    alpha: float = 0.5,
    report: Report | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Subsets:
    """Retrains on `subsets` random shares `alpha` of `graph.train`, each with `seed`, `seed` + 1, …

    Finished retrainings are kept in the file `journal` and not repeated. Raises `Interrupted` soon after
    `stop_requested` returns true.
    """
    trains = len(graph.train)
    size = round(alpha * trains)
    if subsets < 3 or seeds < 1 or not 0 < size < trains:
        raise BadInput(
            f"{subsets} subsets of {size:,} of {trains:,} triples and {seeds} seeds make no score.",
            hint="take at least 3 subsets, 1 seed and a share between 0 and 1.",
        )
    tests = tests.cpu()
    chosen = _subsets(trains, size, subsets, seed)
    wanted = [
        Retraining(tuple((~inside).nonzero()[:, 0].tolist()), seed + i, f"subset {m}")
        for i in range(seeds)
        for m, inside in enumerate(chosen)
    ]
    retrainings = Journal(journal, graph.train, tests, retrain, report=report, stop_requested=stop_requested)
    outcomes = retrainings.outcomes(wanted)
    measured = {}
    for output, sign in OUTPUTS.items():
        values = [[sign * getattr(outcome, output) for outcome in one] for one in outcomes]
        table = torch.tensor(values, dtype=torch.float64).view(seeds, subsets, len(tests))
        measured[output] = table.transpose(1, 2)
    return Subsets(tests, alpha, chosen, measured)


def spearman(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Rank correlation of the rows of `a` and `b`, equal values sharing a rank; NaN for a constant row."""
    rho: torch.Tensor = (_unit_ranks(a) * _unit_ranks(b)).sum(-1)
    return rho


def _correlate(predicted: torch.Tensor, measured: torch.Tensor) -> Correlations:
    """`predicted` (tests, subsets), `measured` (seeds, tests, subsets)."""
    mean = measured.mean(0)
    generator = torch.Generator().manual_seed(0)
    # One order for all tests: they share models, so their outputs are correlated.
    x, y = _unit_ranks(predicted), _unit_ranks(mean)
    orders = [torch.randperm(predicted.shape[1], generator=generator) for _ in range(_SHUFFLES)]
    by_chance = torch.stack([(x * y[:, order]).sum(1).nanmean().abs() for order in orders])
    pairs = combinations(range(len(measured)), 2)
    again = [rho for a, b in pairs for rho in spearman(measured[a], measured[b]).tolist()]
    chance = float(by_chance.nanquantile(0.95))
    by_test = tuple(spearman(predicted, mean).tolist())
    interval = _interval(predicted, mean, generator)
    return Correlations(by_test, interval, None if math.isnan(chance) else chance, tuple(again))


def _interval(
    predicted: torch.Tensor, measured: torch.Tensor, generator: torch.Generator
) -> tuple[float, float] | None:
    tests, subsets = predicted.shape
    means = []
    for _ in range(_DRAWN_AGAIN):
        at = torch.randint(tests, (tests, 1), generator=generator)
        of = torch.randint(subsets, (1, subsets), generator=generator)
        means.append(spearman(predicted[at, of], measured[at, of]).nanmean())
    low, high = torch.stack(means).nanquantile(torch.tensor([0.025, 0.975]).double()).tolist()
    return None if math.isnan(low) else (low, high)


def _subsets(trains: int, size: int, subsets: int, seed: int) -> torch.Tensor:
    """(subsets, trains) of bool, determined by the seed."""
    digest = hashlib.sha256(f"kgops subsets {seed}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
    chosen = torch.zeros(subsets, trains, dtype=torch.bool)
    for row in chosen:
        row[torch.randperm(trains, generator=generator)[:size]] = True
    return chosen


def _unit_ranks(values: torch.Tensor) -> torch.Tensor:
    """Ranks, centred and scaled to length 1."""
    smaller = (values[..., :, None] > values[..., None, :]).sum(-1)
    equal = (values[..., :, None] == values[..., None, :]).sum(-1)
    ranks = smaller.double() + (equal.double() - 1) / 2
    centred = ranks - ranks.mean(-1, keepdim=True)
    unit: torch.Tensor = centred / centred.norm(dim=-1, keepdim=True)
    return unit
