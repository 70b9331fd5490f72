"""Explanations verified by training again from the start without all of their facts, beside two controls.

One control is a training on all triples with another seed (noise), the other one on all but as many random facts of
the same heads and tails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, pstdev

import torch

from kgops.tracin.journal import Journal, Retraining
from kgops.tracin.retraining import Outcome, Retrain
from kgops.training.reporter import Report

__all__ = ["KINDS", "Verified", "verified"]

WITHOUT, RANDOM, ALL = "without the sets", "without random facts", "with all facts"
KINDS = {WITHOUT: "retrained", RANDOM: "retrained_random", ALL: "retrained_all"}  # and their keys in results


@dataclass(frozen=True)
class Verified:
    """`ranks` by kind: for each seed, the filtered tail rank of each prediction. `removed` triples by kind."""

    removed: dict[str, int]
    ranks: dict[str, list[list[float]]]

    @property
    def seeds(self) -> int:
        return len(self.ranks[ALL])

    def hits_at_1(self, kind: str) -> list[float]:
        return [mean(float(rank <= 1) for rank in ranks) for ranks in self.ranks[kind]]

    def mrr(self, kind: str) -> list[float]:
        return [mean(1 / rank for rank in ranks) for ranks in self.ranks[kind]]

    def rank(self, kind: str, prediction: int) -> float:
        """Mean over seeds."""
        return mean(ranks[prediction] for ranks in self.ranks[kind])

    def metrics(self) -> dict[str, float]:
        metrics = {"removed_facts": float(self.removed[WITHOUT]), "retrainings": 3.0 * self.seeds}
        for kind, key in KINDS.items():
            metrics[f"hits_at_1_{key}"], metrics[f"mrr_{key}"] = (
                mean(self.hits_at_1(kind)),
                mean(self.mrr(kind)),
            )
        return metrics

    def sentence(self) -> str:
        n = self.seeds
        spread = f" ± {pstdev(self.mrr(ALL)):.2f}" if n > 1 else ""
        mrr, hits = ({kind: mean(of(kind)) for kind in KINDS} for of in (self.mrr, self.hits_at_1))
        return (
            f"trained again from the start ({n} seed{'s' * (n > 1)}): without the {self.removed[WITHOUT]:,} triples of "
            f"the sets MRR {mrr[WITHOUT]:.2f} and hits@1 {hits[WITHOUT]:.2f}; with all triples, which is noise alone, "
            f"MRR {mrr[ALL]:.2f}{spread} and hits@1 {hits[ALL]:.2f}; without {self.removed[RANDOM]:,} random triples "
            f"of the same heads and tails MRR {mrr[RANDOM]:.2f} and hits@1 {hits[RANDOM]:.2f}."
        )


def verified(
    train: torch.Tensor,
    predictions: torch.Tensor,
    sets: Sequence[torch.Tensor],
    retrain: Retrain,
    journal: Path,
    *,
    seed: int,
    seeds: int = 1,
    report: Report | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Verified:
    """Removes all `sets` (triples, one set for each prediction) at once. Trains with seeds after `seed`, that of the
    explained model. Finished retrainings are kept in the file `journal`. Raises `Interrupted` on a stop request."""
    draw = torch.Generator().manual_seed(seed)
    rows = sorted({row for facts in sets for row in _rows_of(train, facts)})
    pairs = zip(predictions.tolist(), sets, strict=True)
    random = sorted({row for triple, facts in pairs for row in _drawn(train, triple, len(facts), draw)})
    removed: dict[str, tuple[int, ...]] = {WITHOUT: tuple(rows), RANDOM: tuple(random), ALL: ()}
    wanted = [
        Retraining(deleted, seed + 1 + n, kind) for kind, deleted in removed.items() for n in range(seeds)
    ]
    journaled = Journal(journal, train, predictions, retrain, report=report, stop_requested=stop_requested)
    outcomes = iter(journaled.outcomes(wanted))
    ranks = {kind: [_ranks(next(outcomes)) for _ in range(seeds)] for kind in removed}
    return Verified({kind: len(deleted) for kind, deleted in removed.items()}, ranks)


def _ranks(outcomes: Sequence[Outcome]) -> list[float]:
    return [outcome.rank for outcome in outcomes]


def _rows_of(train: torch.Tensor, facts: torch.Tensor) -> list[int]:
    return [int((train == fact).all(dim=1).nonzero()[0]) for fact in facts]


def _drawn(train: torch.Tensor, triple: Sequence[int], many: int, draw: torch.Generator) -> list[int]:
    """Random facts of head and tail, never the prediction itself."""
    mentions = torch.isin(train[:, [0, 2]], torch.tensor([triple[0], triple[2]])).any(dim=1)
    mentions &= (train != torch.tensor(triple)).any(dim=1)
    rows = mentions.nonzero()[:, 0]
    chosen: list[int] = rows[torch.randperm(len(rows), generator=draw)[:many]].tolist()
    return chosen
