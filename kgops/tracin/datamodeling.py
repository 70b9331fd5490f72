"""Do influences add up? The linear datamodeling score (Park et al. 2023, TRAK).

Models are trained on random halves of the training triples. For each test triple the sum of its
influences over a half predicts how well the model of that half does on it; the score is the rank
correlation of predicted and measured over the halves: 1 for a perfect order, 0 for none.
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
from kgops.tracin.journal import Journal, Wanted
from kgops.tracin.mean_and_iqr import Spread
from kgops.tracin.retraining import Retrain
from kgops.training.reporter import Report

__all__ = ["OUTPUTS", "Datamodeling", "linear_datamodeling_score", "spearman"]

# What is measured, and the sign with which more influence should move it.
OUTPUTS = {"margin": 1.0, "logit": 1.0, "loss": -1.0}
_SHUFFLES = 1000


@dataclass(frozen=True)
class Correlations:
    """Of one output: a correlation for each test triple, NaN where all subsets gave the same.

    `chance` is the mean over tests that only one in twenty random orders of the subsets exceeds, either
    way (None where nothing varies). `repeatable` has the correlations of one seed's measurements with
    another's; empty with one seed. Predictions that knew the mean over all seeds would reach about the
    square root of it.
    """

    by_test: tuple[float, ...]
    chance: float | None
    repeatable: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "score": Spread.of(self.by_test).to_dict(),
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

    def metrics(self) -> dict[str, float]:
        found: dict[str, float | None] = {"subsets": float(self.subsets)}
        for output, correlations in self.outputs.items():
            found[f"lds_{output}"] = self.score(output).mean
            found[f"lds_{output}_chance"] = correlations.chance
            found[f"lds_{output}_repeatable"] = Spread.of(correlations.repeatable).mean
        return {name: value for name, value in found.items() if value is not None}

    def measurements(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        name, unit = "tracin linear datamodeling score", "rank correlation"
        for output, correlations in self.outputs.items():
            found += self.score(output).measurement(name, output, None, unit)
            chance = Spread(correlations.chance, None, None, None, _SHUFFLES)
            found += chance.measurement(name, f"{output}, exceeded by chance 1 in 20", None, unit)
            repeatable = Spread.of(correlations.repeatable)
            found += repeatable.measurement(name, f"{output}, measured again", None, unit)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Everything, for a file of JSON."""
        return {
            "subsets": self.subsets,
            "seeds": self.seeds,
            "alpha": self.alpha,
            "tests": [list(triple) for triple in self.tests],
            "metrics": self.metrics(),
            "outputs": {name: correlations.to_dict() for name, correlations in self.outputs.items()},
        }


def linear_datamodeling_score(
    graph: Graph,
    tests: torch.Tensor,
    scores: torch.Tensor,
    retrain: Retrain,
    journal: Path,
    *,
    seed: int,
    subsets: int = 20,
    seeds: int = 1,
    alpha: float = 0.5,
    report: Report | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Datamodeling:
    """Retrains on `subsets` random shares `alpha` of `graph.train`, each with `seed`, `seed` + 1, …

    `scores` are (tests, trains), every one of them. What is measured is averaged over the `seeds`.
    Retrainings finished go to the file `journal` and are not done again. Raises `Interrupted` soon
    after `stop_requested` says so.
    """
    trains = len(graph.train)
    kept = round(alpha * trains)
    if subsets < 3 or seeds < 1 or not 0 < kept < trains:
        raise BadInput(
            f"{subsets} subsets of {kept:,} of {trains:,} triples and {seeds} seeds make no score.",
            hint="take at least 3 subsets, 1 seed and a share between 0 and 1.",
        )
    if scores.shape != (len(tests), trains):
        raise ValueError(f"scores are {tuple(scores.shape)}, not (tests, trains)")
    tests = tests.cpu()
    chosen = _subsets(trains, kept, subsets, seed)
    wanted = [
        Wanted(tuple((~inside).nonzero()[:, 0].tolist()), seed + i, f"subset {m}")
        for i in range(seeds)
        for m, inside in enumerate(chosen)
    ]
    book = Journal(journal, graph.train, tests, retrain, report=report, stop_requested=stop_requested)
    outcomes = book.outcomes(wanted)
    predicted = scores.detach().cpu().double() @ chosen.double().t()
    outputs = {}
    for output, sign in OUTPUTS.items():
        values = [[sign * getattr(outcome, output) for outcome in one] for one in outcomes]
        measured = torch.tensor(values, dtype=torch.float64).view(seeds, subsets, len(tests))
        outputs[output] = _correlate(predicted, measured.transpose(1, 2))
    triples = tuple((int(h), int(r), int(t)) for h, r, t in tests.tolist())
    return Datamodeling(subsets, seeds, alpha, triples, outputs)


def spearman(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Rank correlation of the rows of `a` and `b`, equal values sharing a rank; NaN for a constant row."""
    rho: torch.Tensor = (_unit_ranks(a) * _unit_ranks(b)).sum(-1)
    return rho


def _correlate(predicted: torch.Tensor, measured: torch.Tensor) -> Correlations:
    """`predicted` (tests, subsets), `measured` (seeds, tests, subsets)."""
    mean = measured.mean(0)
    generator = torch.Generator().manual_seed(0)
    # One order for all tests: they are measured on the same models, so they go up and down together.
    x, y = _unit_ranks(predicted), _unit_ranks(mean)
    orders = [torch.randperm(predicted.shape[1], generator=generator) for _ in range(_SHUFFLES)]
    by_chance = torch.stack([(x * y[:, order]).sum(1).nanmean().abs() for order in orders])
    pairs = combinations(range(len(measured)), 2)
    again = [rho for a, b in pairs for rho in spearman(measured[a], measured[b]).tolist()]
    chance = float(by_chance.nanquantile(0.95))
    by_test = tuple(spearman(predicted, mean).tolist())
    return Correlations(by_test, None if math.isnan(chance) else chance, tuple(again))


def _subsets(trains: int, kept: int, subsets: int, seed: int) -> torch.Tensor:
    """(subsets, trains) of bool, the same for the same seed."""
    digest = hashlib.sha256(f"kgops subsets {seed}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
    chosen = torch.zeros(subsets, trains, dtype=torch.bool)
    for row in chosen:
        row[torch.randperm(trains, generator=generator)[:kept]] = True
    return chosen


def _unit_ranks(values: torch.Tensor) -> torch.Tensor:
    """Ranks less their mean, of length 1."""
    smaller = (values[..., :, None] > values[..., None, :]).sum(-1)
    equal = (values[..., :, None] == values[..., None, :]).sum(-1)
    ranks = smaller.double() + (equal.double() - 1) / 2
    centred = ranks - ranks.mean(-1, keepdim=True)
    unit: torch.Tensor = centred / centred.norm(dim=-1, keepdim=True)
    return unit
