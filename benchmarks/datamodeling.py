"""Linear datamodeling score (Park et al. 2023): do summed influences predict a retrained model's outputs?

Models are trained on random subsets of the training triples. For each test triple, the sum of its influences over
a subset predicts the output of that subset's model. The score is the rank correlation of predicted and measured
outputs over the subsets: 1 is a perfect order, 0 none.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import torch

from kgops.graphs.triples import Graph
from kgops.tracin.journal import Journal, Retraining
from kgops.tracin.retraining import Retrain
from kgops.training.reporter import Report

OUTPUTS = ("logit", "margin")
_BOOTSTRAPS = 200


@dataclass(frozen=True)
class Correlation:
    """Mean rank correlation over the test triples; `interval`: 95 %, by drawing tests and subsets again."""

    mean: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Subsets:
    """Random subsets of the training triples, and what models trained on each of them make of the tests.

    `chosen` (subsets, trains) of bool; `measured` (tests, subsets) by output: the mean over seeds.
    """

    chosen: torch.Tensor
    measured: dict[str, torch.Tensor]

    def score(self, scores: torch.Tensor) -> dict[str, Correlation]:
        """By output; `scores` (tests, trains)."""
        predicted = scores.detach().cpu().double() @ self.chosen.double().t()
        return {name: _correlate(predicted, measured) for name, measured in self.measured.items()}


def train_on_subsets(
    graph: Graph,
    tests: torch.Tensor,
    retrain: Retrain,
    journal: Path,
    *,
    seed: int,
    subsets: int,
    seeds: int = 1,
    report: Report | None = None,
) -> Subsets:
    """Retrains on random halves of `graph.train`, each with `seed`, `seed` + 1, …; those in `journal` are kept."""
    tests = tests.cpu()
    chosen = _halves(len(graph.train), subsets, seed)
    wanted = [
        Retraining(tuple((~inside).nonzero()[:, 0].tolist()), seed + i, f"subset {m}")
        for i in range(seeds)
        for m, inside in enumerate(chosen)
    ]
    outcomes = Journal(journal, graph.train, tests, retrain, report=report).outcomes(wanted)
    measured = {}
    for output in OUTPUTS:
        values = [[getattr(outcome, output) for outcome in one] for one in outcomes]
        table = torch.tensor(values, dtype=torch.float64).view(seeds, subsets, len(tests))
        measured[output] = table.mean(0).t()
    return Subsets(chosen, measured)


def spearman(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Rank correlation of the rows of `a` and `b`, equal values sharing a rank; NaN for a constant row."""
    rho: torch.Tensor = (_unit_ranks(a) * _unit_ranks(b)).sum(-1)
    return rho


def _correlate(predicted: torch.Tensor, measured: torch.Tensor) -> Correlation:
    tests, subsets = predicted.shape
    generator = torch.Generator().manual_seed(0)
    means = []
    for _ in range(_BOOTSTRAPS):
        at = torch.randint(tests, (tests, 1), generator=generator)
        of = torch.randint(subsets, (1, subsets), generator=generator)
        means.append(spearman(predicted[at, of], measured[at, of]).nanmean())
    low, high = torch.stack(means).nanquantile(torch.tensor([0.025, 0.975]).double()).tolist()
    mean = float(spearman(predicted, measured).nanmean())
    return Correlation(
        None if math.isnan(mean) else mean,
        None if math.isnan(low) else (low, high),
    )


def _halves(trains: int, subsets: int, seed: int) -> torch.Tensor:
    """(subsets, trains) of bool, determined by the seed."""
    digest = hashlib.sha256(f"kgops subsets {seed}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
    chosen = torch.zeros(subsets, trains, dtype=torch.bool)
    for row in chosen:
        row[torch.randperm(trains, generator=generator)[: round(trains / 2)]] = True
    return chosen


def _unit_ranks(values: torch.Tensor) -> torch.Tensor:
    """Ranks, centred and scaled to length 1."""
    smaller = (values[..., :, None] > values[..., None, :]).sum(-1)
    equal = (values[..., :, None] == values[..., None, :]).sum(-1)
    ranks = smaller.double() + (equal.double() - 1) / 2
    centred = ranks - ranks.mean(-1, keepdim=True)
    unit: torch.Tensor = centred / centred.norm(dim=-1, keepdim=True)
    return unit
