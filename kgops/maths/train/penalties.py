"""What a training of vectors adds to the loss of its scores: N3, and the prediction of relations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from kgops.maths.models.encoder import add_rows, grad_of
from kgops.maths.models.vectors import VectorModel
from kgops.maths.train.batches import Batch


@dataclass(frozen=True)
class Penalties:
    """Means over the triples of a batch, each times its weight.

    N3 is the sum of the cubed sizes of head, relation and tail (Lacroix et al., 2018). The prediction of relations is
    the softmax cross-entropy of a triple's relation among all (Chen et al., 2021).
    """

    n3: float
    relations: float

    def add(
        self, model: VectorModel, batch: Batch, head_rows: torch.Tensor, relation_rows: torch.Tensor
    ) -> None:
        """Adds to the `.grad` of the rows and of the model's tables."""
        rows, tails = batch.positives.rows, batch.positives.entities
        # A batch of fixed size is filled up with pairs that do not count.
        counted = tails < len(model.entities)
        share = counted.to(head_rows) / counted.sum().clamp_min(1)
        tails = tails.where(counted, 0)
        tail_rows = model.entities.detach()[tails]
        if self.n3:
            own = torch.zeros(len(batch), device=rows.device, dtype=share.dtype).index_add_(0, rows, share)
            for side in (head_rows, relation_rows):
                assert side.grad is not None
                side.grad += self._cubes(model, side.detach(), own)
            add_rows(grad_of(model.entities), tails, self._cubes(model, tail_rows, share))
        if self.relations:
            self._predict(model, batch, head_rows, tails, tail_rows, share)

    def _cubes(self, model: VectorModel, rows: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        """The gradient of N3."""
        return (3 * self.n3) * share[:, None] * model.sizes(rows) * rows

    def _predict(
        self,
        model: VectorModel,
        batch: Batch,
        head_rows: torch.Tensor,
        tails: torch.Tensor,
        tail_rows: torch.Tensor,
        share: torch.Tensor,
    ) -> None:
        rows = batch.positives.rows
        with torch.enable_grad():
            leaves = [head_rows.detach()[rows], model.relations.detach(), tail_rows]
            heads, relations, ends = (leaf.requires_grad_() for leaf in leaves)
            logits = model.relation_rows(heads, ends) @ relations.t()
            each = F.cross_entropy(logits, batch.relations[rows], reduction="none")
            total = (each * share).sum() * self.relations
            d_heads, d_relations, d_tails = torch.autograd.grad(total, (heads, relations, ends))
        assert head_rows.grad is not None
        add_rows(head_rows.grad, rows, d_heads)
        add_rows(grad_of(model.entities), tails, d_tails)
        grad_of(model.relations).add_(d_relations)
