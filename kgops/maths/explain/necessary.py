"""The facts of head and tail that carry a prediction: those whose influence on its lead over its rivals is strongest.

An influence is the Fisher score, `kgops tracin --score fisher`, of labels: how removing a training triple moves a
logit, to first order, with the curvature of the training loss. What lifts all tails alike explains no rank, so the
influence on the rivals' logits is taken off. Not all of it, though: an entity of few facts loses its rivals with its
answer, and what was no rival passes both.
"""

from __future__ import annotations

import torch

from kgops.maths.explain.prediction import Prediction, Query
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.curvature import Training
from kgops.maths.tracin.scores import FisherEngine
from kgops.maths.train.evaluate import split


class Influences:
    """Of training triples on the logits of a prediction and its rivals."""

    def __init__(self, model: ConvE, training: Training, *, seed: int = 0) -> None:
        settings = Settings(score="fisher", training=training, seed=seed)
        # Facts that are learnt well have no gradient under 1vsAll, and are forgotten all the same without their sample.
        self._engine = FisherEngine(TracinCheckpoint(model, 1.0), settings, labels=True)
        self._device, self._block = model.entities.device, settings.block

    @torch.no_grad()
    def falls(self, prediction: Prediction, triples: torch.Tensor) -> torch.Tensor:
        """(answer and rivals, triples): how far each logit falls without a triple."""
        kept = self._engine.keep_rows(prediction.rows.to(self._device))
        blocks = split(triples.to(self._device), self._block)
        return torch.cat([self._engine.scores(kept, block) for block in blocks], dim=1)


def facts_of(train: torch.Tensor, *entities: int) -> torch.Tensor:
    """Rows of the training triples that mention one of the entities."""
    return torch.isin(train[:, [0, 2]], torch.tensor(entities)).any(dim=1).nonzero()[:, 0]


def is_itself(facts: torch.Tensor, triple: tuple[int, int, int]) -> torch.Tensor:
    """Which of the facts are the prediction itself."""
    return (facts == torch.tensor(triple)).all(dim=1)


def explain(
    prediction: Prediction, triples: torch.Tensor, falls: torch.Tensor, *, most: int
) -> list[tuple[int, float]]:
    """At most `most` rows of `triples`, those whose removal lowers the lead most, and by how much each does. Of a fact
    that is one of d about its end, 1/d of the rivals' fall is not taken off.

    These are a ranking, not logits: several removals together do far less than the sum says. The prediction itself,
    where it is a training triple, is never one of them.
    """
    kept = 1 - 1 / _facts_beside(prediction.query, triples).to(falls)
    effects = kept * prediction.of_rivals(falls) - falls[0]
    itself = is_itself(triples, prediction.query.triple).to(effects.device)
    effects = effects.masked_fill(itself, torch.inf)
    strongest = effects.argsort(stable=True)[:most].tolist()
    return [(row, float(effects[row])) for row in strongest if effects[row] < 0]


def _facts_beside(query: Query, triples: torch.Tensor) -> torch.Tensor:
    """For each of the triples, how many mention the same end: the given entity, else the answer."""
    of_given, of_answer = ((triples[:, [0, 2]] == end).any(dim=1) for end in (query.given, query.answer))
    return torch.where(of_given, of_given.sum(), of_answer.sum())
