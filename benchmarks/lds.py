"""Linear datamodeling score (Park et al. 2023) of every score of a training triple: what `--lds` of explain runs."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from benchmarks.quality import Silent
from kgops.graphs.triples import Graph
from kgops.models.conve import ConvEConfig
from kgops.tracin.datamodeling import Subsets, train_on_subsets
from kgops.tracin.retraining import FitAgain
from kgops.training.settings import TrainSettings

__all__ = ["outcomes_of_subsets"]


class Told(Silent):
    """Says how far the trainings are."""

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        if phase == "retrain":
            print(f"\r{done:.0f} of {total:.0f} {unit}", end="", file=sys.stderr, flush=True)


def drawn_tests(graph: Graph, tests: int, seed: int) -> torch.Tensor:
    order = torch.randperm(len(graph.test), generator=torch.Generator().manual_seed(seed))
    return graph.test[order[:tests]]


def outcomes_of_subsets(
    graph: Graph,
    config: ConvEConfig,
    settings: TrainSettings,
    folder: Path,
    *,
    tests: int,
    subsets: int,
    seeds: int,
) -> Subsets:
    """Trains on random halves; what has been trained is kept in `folder` and not trained again."""
    drawn = drawn_tests(graph, tests, settings.seed)
    again = FitAgain(graph, drawn, config, settings, folder, Silent())
    return train_on_subsets(
        graph,
        drawn,
        again,
        folder / "subsets.jsonl",
        seed=settings.seed + 1,
        subsets=subsets,
        seeds=seeds,
        report=Told(),
    )
