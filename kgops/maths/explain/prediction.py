"""A prediction, of a tail or of a head, and its rivals: score, rank, margin."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kgops.maths.models.conve import ConvE
from kgops.workloads.explain.options import EXPLAIN_RIVALS


@dataclass(frozen=True)
class Query:
    """A triple whose tail the model is asked for, (head, relation, ?), or its head, (?, relation, tail)."""

    triple: tuple[int, int, int]
    asks_head: bool = False

    @property
    def given(self) -> int:
        return self.triple[2 if self.asks_head else 0]

    @property
    def answer(self) -> int:
        return self.triple[0 if self.asks_head else 2]

    @property
    def question(self) -> torch.Tensor:
        """As `KnownTriples.answers` takes it."""
        return torch.tensor([[self.given, self.triple[1], int(self.asks_head)]])

    def about(self, entity: int) -> Query:
        """The same answer, asked of another entity."""
        h, r, t = self.triple
        return replace(self, triple=(h, r, entity) if self.asks_head else (entity, r, t))

    def row(self, *, inverse: bool) -> tuple[int, int, int]:
        """Entity, relation and answer as the model numbers them. Heads are asked for by the inverse relation."""
        r = self.triple[1]
        return self.given, 2 * r + self.asks_head if inverse else r, self.answer


@dataclass(frozen=True)
class Standing:
    """`margin`: the logit less the log-sum-exp over others that are no known answers; `rank`: filtered, realistic."""

    score: float
    rank: float
    margin: float


class Prediction:
    """`known` are true answers to the question in any file. A model without inverse relations is asked for tails."""

    @torch.no_grad()
    def __init__(self, model: ConvE, query: Query, known: torch.Tensor) -> None:
        self.query = query
        self._row = given, relation, answer = query.row(inverse=model.config.inverse)
        at = torch.tensor([[given], [relation]], device=model.entities.device)
        scores = torch.addmm(model.biases, model.encode(at[0], at[1]), model.entities.t())[0]
        self._own = scores[answer].clone()
        self._scores = scores
        self._scores[known.to(scores.device)] = -torch.inf
        self._scores[answer] = -torch.inf
        true = int(torch.isfinite(self._scores).sum())
        self.rivals = self._scores.topk(min(EXPLAIN_RIVALS, true)).indices

    @property
    def rows(self) -> torch.Tensor:
        """The query's row, and the same with each rival as answer."""
        rows = torch.tensor([self._row] * (1 + len(self.rivals)))
        rows[1:, 2] = self.rivals.cpu()
        return rows

    @property
    def shares(self) -> torch.Tensor:
        """How much each rival counts: by its probability among them."""
        return self._scores[self.rivals].softmax(0)

    def lead(self, logits: torch.Tensor) -> torch.Tensor:
        """Of the answer over its rivals: `logits` are in the order of `rows`, other dimensions come behind."""
        return logits[0] - self.of_rivals(logits)

    def of_rivals(self, logits: torch.Tensor) -> torch.Tensor:
        """Their mean, by their shares."""
        return self.shares @ logits[1:]

    def standing(self) -> Standing:
        own, others = self._own, self._scores
        rank = 1 + float((others > own).sum()) + float((others == own).sum()) / 2
        return Standing(float(own), rank, float(own - others.logsumexp(0)))
