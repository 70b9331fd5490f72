"""A prediction (head, relation, tail) and its rivals: score, rank, margin."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kgops.models.conve import ConvE

__all__ = ["RIVALS", "Prediction", "Standing"]

RIVALS = 4  # entities with the highest scores that are no known tails: those that would take a lost rank


@dataclass(frozen=True)
class Standing:
    """`margin`: the logit less the log-sum-exp over entities that are not known tails; `rank`: filtered, realistic."""

    score: float
    rank: float
    margin: float


class Prediction:
    """`known` are true tails of (head, relation) in any file."""

    @torch.no_grad()
    def __init__(self, model: ConvE, triple: tuple[int, int, int], known: torch.Tensor) -> None:
        self.triple = triple
        h, r, t = triple
        at = torch.tensor([[h], [2 * r if model.config.inverse else r]], device=model.entities.device)
        scores = torch.addmm(model.biases, model.encode(at[0], at[1]), model.entities.t())[0]
        self._own = scores[t].clone()
        self._scores = scores
        self._scores[known.to(scores.device)] = -torch.inf
        self._scores[t] = -torch.inf
        true = int(torch.isfinite(self._scores).sum())
        self.rivals = self._scores.topk(min(RIVALS, true)).indices

    @property
    def asked(self) -> torch.Tensor:
        """The triple, and the same with each rival as tail."""
        rows = torch.tensor([self.triple] * (1 + len(self.rivals)))
        rows[1:, 2] = self.rivals.cpu()
        return rows

    @property
    def shares(self) -> torch.Tensor:
        """How much each rival counts: by its probability among them."""
        return self._scores[self.rivals].softmax(0)

    def lead(self, logits: torch.Tensor) -> torch.Tensor:
        """Of the tail over its rivals: `logits` are in the order of `asked`, other dimensions come behind."""
        return logits[0] - self.shares @ logits[1:]

    def standing(self) -> Standing:
        own, others = self._own, self._scores
        rank = 1 + float((others > own).sum()) + float((others == own).sum()) / 2
        return Standing(float(own), rank, float(own - others.logsumexp(0)))
