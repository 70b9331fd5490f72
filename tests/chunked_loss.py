"""`EntityLoss` for autograd, so that its gradients stand beside those of a dense loss."""

from typing import Any

import torch
from torch.nn import functional as F

from kgops.maths.train.losses import EntityLoss, Positives


def chunked_loss(
    loss: EntityLoss,
    queries: torch.Tensor,
    entities: torch.Tensor,
    biases: torch.Tensor,
    positives: Positives,
) -> torch.Tensor:
    """The loss as a scalar for autograd."""
    value: torch.Tensor = _Chunked.apply(  # type: ignore[no-untyped-call]
        loss, queries, entities, biases, positives
    )
    return value


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        loss: EntityLoss,
        queries: torch.Tensor,
        entities: torch.Tensor,
        biases: torch.Tensor,
        positives: Positives,
    ) -> torch.Tensor:
        d_entities, d_biases = torch.empty_like(entities), torch.empty_like(biases)
        result = loss(queries, entities, biases, positives, d_entities, d_biases)
        ctx.save_for_backward(result.d_queries, d_entities, d_biases)
        assert result.value is not None
        return result.value

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        d_queries, d_entities, d_biases = ctx.saved_tensors
        return None, grads[0] * d_queries, grads[0] * d_entities, grads[0] * d_biases, None


def dense_loss(loss: EntityLoss, scores: torch.Tensor, positives: Positives) -> torch.Tensor:
    """The same of the scores of all entities."""
    labels = torch.zeros_like(scores)
    labels[positives.rows, positives.entities] = 1
    smoothing = loss.smoothing
    if loss.kind == "bce":
        labels = (1 - smoothing) * labels + smoothing / scores.shape[1]
        return F.binary_cross_entropy_with_logits(scores, labels)
    return F.cross_entropy(scores, labels / labels.sum(1, keepdim=True), label_smoothing=smoothing)
