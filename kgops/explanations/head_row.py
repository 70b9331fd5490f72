"""The training loss as a function of one entity's own row, all else fixed: gradient, curvature, effects of facts.

The row is seen as the head of its own queries and as a tail of all others' queries. As a tail of its own queries
(another candidate there, or a loop) it stays as trained, and the encoder is taken as linear around the trained row,
which it is up to the next edge of a ReLU: so every score is linear in the row, the loss is convex, and the
Gauss-Newton matrix is its second derivative.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn import functional as F

from kgops.explanations.head_encoder import HeadEncoder, Piece
from kgops.explanations.targets import Targets
from kgops.explanations.training_queries import Background, Facts, TrainingQueries, encoded, normalizers
from kgops.models.conve import ConvE

__all__ = ["HeadRow", "Row", "Surroundings"]

_SCORES_AT_ONCE = 1 << 22
_WEIGHED = 1024  # entities whose curvature counts one by one; the others' by its mean


@dataclass(frozen=True)
class Surroundings:
    """What all heads of a model share."""

    model: ConvE
    targets: Targets
    queries: TrainingQueries
    encoder: HeadEncoder
    background: Background
    damping: float = 0.1  # of the mean curvature: how strongly the row is held where it was
    scores_at_once: int = _SCORES_AT_ONCE
    weighed: int = _WEIGHED

    @cached_property
    def gram(self) -> torch.Tensor:
        """The product of the entities with themselves: (dim, dim)."""
        entities = self.model.entities.detach()
        return entities.t() @ entities

    @property
    def at_once(self) -> int:
        """The head's own queries that are scored at once."""
        return max(1, self.scores_at_once // self.model.config.num_entities)


@dataclass(frozen=True)
class Row:
    """The loss at one value of the row, as far as it was asked for; `pulls` and `tails` are of own queries."""

    vector: torch.Tensor
    value: float
    gradient: torch.Tensor
    pulls: torch.Tensor  # Σ entities · (probability - low)
    tails: torch.Tensor  # Σ of entities that are true tails
    column: torch.Tensor  # probability - low of the head in each fact's query of another entity
    curvature: torch.Tensor | None


class HeadRow:
    """`kept` below says of each fact whether it is still in the training."""

    def __init__(self, around: Surroundings, head: int) -> None:
        self.around, self.head = around, head
        model, targets = around.model, around.targets
        device = model.entities.device
        self.entities, self.biases = model.entities.detach(), model.biases.detach()
        self.start = self.entities[head].clone()
        self.facts: Facts = around.queries.facts_of(head)
        relations, own = torch.unique(self.facts.own_relations, return_inverse=True)
        self.relations = model.relations.detach()[relations.to(device)]
        self.own, self.own_tails = own.to(device), self.facts.own_tails.to(device)
        self.own_facts, self.column_facts = (
            self.facts.own_facts.to(device),
            self.facts.column_facts.to(device),
        )
        self.column_counts = self.facts.column_counts.to(self.start)
        pairs = around.queries.pairs(self.facts.column_queries)
        self.column_vectors = encoded(around.encoder, model, pairs)
        self.background = around.background.vectors
        weights = around.background.weights(self.facts, len(relations)).to(self.start)
        self.background_weights = weights * targets.weight(around.background.counts.to(self.start))
        self._rest = self._rest_of_background = None
        if targets.kind == "softmax":
            self._rest = self._without_head(self.column_vectors, normalizers(model, self.column_vectors))
            assert around.background.normalizers is not None
            self._rest_of_background = self._without_head(self.background, around.background.normalizers)
        self.entity_sum = self.entities.sum(0)
        step = around.at_once
        blocks = [
            slice(at, min(at + step, len(self.relations))) for at in range(0, len(self.relations), step)
        ]
        self._pieces = [(rows, around.encoder.at(self.start, self.relations[rows])) for rows in blocks]
        everything = torch.ones(len(self.facts), dtype=torch.bool, device=device)
        first = self._of_loss(self.start, everything, want_curvature=True)
        assert first.curvature is not None
        # Training ends where it ends, with dropout and other rows on the move: all that is asked here is what
        # changes, so its end is taken as the row where nothing pulls.
        self._anchor = first.gradient
        self.held = float(around.damping * first.curvature.trace() / len(self.start))

    def _without_head(self, vectors: torch.Tensor, normalizers: torch.Tensor) -> torch.Tensor:
        """The log-sum-exp over all entities but the head."""
        share = (self._head_scores(vectors, self.start).double() - normalizers).exp()
        return normalizers + torch.log1p(-share.clamp_max(1 - 1e-12))

    def _head_scores(self, vectors: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        return vectors @ row + self.biases[self.head]

    def at(self, row: torch.Tensor, kept: torch.Tensor, *, want_curvature: bool = False) -> Row:
        """The loss, less the slope it had at the end of the training, and held where the row was."""
        of_loss = self._of_loss(row, kept, want_curvature)
        moved = row - self.start
        pulled = self.held * moved - self._anchor
        value = of_loss.value + float((moved @ (pulled - self.held / 2 * moved)).double())
        curvature = of_loss.curvature
        if curvature is not None:
            curvature = curvature + self.held * torch.eye(len(row), dtype=row.dtype, device=row.device)
        return Row(
            row, value, of_loss.gradient + pulled, of_loss.pulls, of_loss.tails, of_loss.column, curvature
        )

    def effects(self, at: Row, kept: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """For each kept fact, the slope along -`direction` that its removal adds; 0 for facts already removed.

        With the inverse curvature times the gradient of a margin as direction, that is how removing the fact changes
        the margin, to first order.
        """
        targets, n = self.around.targets, self._tails_of_queries(kept)
        along = torch.cat([piece.along(direction) for _, piece in self._pieces])
        fewer = (n - 1).clamp_min(0)
        pulls, tails = (along * at.pulls).sum(1), (along * at.tails).sum(1)
        own = (targets.weight(fewer) - targets.weight(n)) * pulls
        own = own + (targets.lift(n) - targets.lift(fewer)) * tails
        found = torch.zeros(len(self.facts), dtype=along.dtype, device=along.device)
        tail = (along[self.own] * self.entities[self.own_tails]).sum(1)
        found.index_add_(0, self.own_facts, -own[self.own] - targets.lift(fewer)[self.own] * tail)
        n = self.column_counts
        change = (targets.weight(n - 1) - targets.weight(n)) * at.column + targets.lift(n)
        found.index_add_(0, self.column_facts, -(self.column_vectors @ direction) * change)
        return found * kept

    def _tails_of_queries(self, kept: torch.Tensor) -> torch.Tensor:
        n = torch.zeros(len(self.relations), dtype=self.start.dtype, device=self.start.device)
        return n.index_add_(0, self.own, kept[self.own_facts].to(n))

    @torch.no_grad()
    def _of_loss(self, row: torch.Tensor, kept: torch.Tensor, want_curvature: bool) -> Row:
        targets, dim = self.around.targets, len(row)
        n = self._tails_of_queries(kept)
        weight, lift = targets.weight(n), targets.lift(n)
        tails = torch.zeros(len(self.relations), dim, dtype=row.dtype, device=row.device)
        here = kept[self.own_facts]
        tails.index_add_(0, self.own[here], self.entities[self.own_tails[here]])
        bias = torch.zeros_like(n).index_add_(0, self.own[here], self.biases[self.own_tails[here]])
        curvature = row.new_zeros(dim, dim) if want_curvature else None
        gradient, value, pulls = torch.zeros_like(row), 0.0, torch.empty_like(tails)
        for rows, piece in self._pieces:
            vectors = piece.vectors + piece.along(row - self.start)
            scores = torch.addmm(self.biases, vectors, self.entities.t())
            own = weight[rows]
            value += float((own * self._normalizer(scores)).sum(dtype=torch.float64))
            value -= float((lift[rows] * ((vectors * tails[rows]).sum(1) + bias[rows])).sum())
            if targets.low:
                value -= targets.low * float((own * scores.sum(1)).sum(dtype=torch.float64))
            shares = scores.sigmoid_() if targets.kind == "bce" else scores.softmax(dim=1)
            mean = shares @ self.entities
            pulls[rows] = mean - targets.low * self.entity_sum
            gradient += piece.back(own[:, None] * pulls[rows] - lift[rows][:, None] * tails[rows])
            if curvature is not None:
                self._add_curvature(curvature, piece, shares, mean, own)
        added, column = self._column(row, kept, gradient, curvature)
        return Row(row, value + added, gradient, pulls, tails, column, curvature)

    def _normalizer(self, scores: torch.Tensor) -> torch.Tensor:
        """A(s) of each query."""
        if self.around.targets.kind == "bce":
            return F.softplus(scores).sum(1)
        return scores.logsumexp(dim=1)

    def _add_curvature(
        self,
        curvature: torch.Tensor,
        piece: Piece,
        shares: torch.Tensor,
        mean: torch.Tensor,
        weight: torch.Tensor,
    ) -> None:
        """Adds slopesᵀ · entitiesᵀ · diag(p') · entities · slopes for each query, by the units that are on alone."""
        bce, most = self.around.targets.kind == "bce", self.around.weighed
        for query in range(len(shares)):
            if not float(weight[query]):
                continue
            units, slopes = piece.slopes(query)
            p = shares[query] * (1 - shares[query]) if bce else shares[query]
            if len(p) <= most:
                inner = self._product(units, p)
            else:
                top, at = p.topk(most)
                others = (p.sum() - top.sum()) / (len(p) - most)
                inner = self._product(units, top - others, at) + others * self.around.gram[units][:, units]
            if not bce:
                inner -= torch.outer(mean[query][units], mean[query][units])
            curvature.addmm_(slopes.t(), inner @ slopes, alpha=float(weight[query]))

    def _product(
        self, units: torch.Tensor, weights: torch.Tensor, at: torch.Tensor | None = None
    ) -> torch.Tensor:
        entities = (self.entities if at is None else self.entities[at])[:, units]
        return entities.t() @ (entities * weights[:, None])

    def _column(
        self, row: torch.Tensor, kept: torch.Tensor, gradient: torch.Tensor, curvature: torch.Tensor | None
    ) -> tuple[float, torch.Tensor]:
        """Adds what the row does as a tail of other entities' queries; returns the value, and each fact's pull."""
        targets, here = self.around.targets, kept[self.column_facts].to(row)
        n = self.column_counts
        weight = targets.weight(n - 1 + here)
        parts = (
            (self.column_vectors, weight, targets.lift(n) * here, self._rest),
            (self.background, self.background_weights, None, self._rest_of_background),
        )
        value, pulls = 0.0, []
        for vectors, weights, lift, rest in parts:
            scores = self._head_scores(vectors, row)
            if rest is None:
                normalizer, share = F.softplus(scores), scores.sigmoid()
            else:
                normalizer = torch.logaddexp(rest, scores.double())
                share = (scores.double() - normalizer).exp().to(row)
            value += float((weights * (normalizer - targets.low * scores)).sum(dtype=torch.float64))
            pull = weights * (share - targets.low)
            if lift is not None:
                value -= float((lift * scores).sum(dtype=torch.float64))
                pull = pull - lift
            gradient += vectors.t() @ pull
            if curvature is not None:
                curvature += vectors.t() @ (vectors * (weights * share * (1 - share))[:, None])
            pulls.append(share - targets.low)
        return value, pulls[0]
