"""`EntityLoss` for autograd, so that its gradients stand beside those of a dense loss."""

from __future__ import annotations

from typing import Any

import torch

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
