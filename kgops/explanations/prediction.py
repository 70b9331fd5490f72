"""A prediction (head, relation, tail) as a function of the head's row: scores, filtered rank, margin and its slope."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kgops.explanations.head_encoder import HeadEncoder
from kgops.models.conve import ConvE

__all__ = ["Prediction", "Standing"]


@dataclass(frozen=True)
class Standing:
    """Where a prediction stands. `margin`: the logit less the log-sum-exp over entities that are not known tails.

    `lead`: the logit less that of the best of them; `rank` is filtered and realistic.
    """

    score: float
    rank: float
    margin: float
    lead: float


class Prediction:
    """`known` are true tails of (head, relation) in any file."""

    def __init__(
        self, model: ConvE, encoder: HeadEncoder, triple: tuple[int, int, int], known: torch.Tensor
    ) -> None:
        self.model, self.encoder, self.triple = model, encoder, triple
        row = 2 * triple[1] if model.config.inverse else triple[1]
        self._relation = model.relations.detach()[row : row + 1]
        self._entities, self._biases = model.entities.detach(), model.biases.detach()
        others = torch.ones(len(self._entities), dtype=torch.bool, device=self._entities.device)
        others[known.to(others.device)] = False
        others[triple[2]] = False
        self._others = others.nonzero()[:, 0]

    @torch.no_grad()
    def scores(self, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The tail's score and those of the entities that are not known tails."""
        vector = self.encoder.at(row, self._relation).vectors[0]
        scores = torch.addmv(self._biases, self._entities, vector)
        return scores[self.triple[2]], scores[self._others]

    def standing(self, row: torch.Tensor) -> Standing:
        own, others = self.scores(row)
        rank = 1 + float((others > own).sum()) + float((others == own).sum()) / 2
        best = float(others.max()) if len(others) else -torch.inf
        return Standing(float(own), rank, float(own - others.logsumexp(0)), float(own) - best)

    def above(self, row: torch.Tensor, by: float) -> int:
        """How many entities have a score higher than the tail's by so much."""
        own, others = self.scores(row)
        return int((others > own + by).sum())

    @torch.no_grad()
    def slope(self, row: torch.Tensor) -> torch.Tensor:
        """The gradient of the margin."""
        piece = self.encoder.at(row, self._relation)
        scores = torch.addmv(self._biases, self._entities, piece.vectors[0])
        shares = scores[self._others].softmax(0)
        pull = self._entities[self.triple[2]] - shares @ self._entities[self._others]
        return piece.back(pull[None])
