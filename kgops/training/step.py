"""One training step of ConvE: gradients written in place, nothing of batch x entities stored."""

from __future__ import annotations

import torch

from kgops.models.conve import ConvE
from kgops.models.encoder import Buffers, FusedEncoder, grad_of
from kgops.training.batches import Batch
from kgops.training.losses import EntityLoss

__all__ = ["TrainStep"]


class TrainStep:
    """Forward, loss, backward and update for a batch.

    Gradients live in the parameters' `.grad`, allocated once and overwritten by every step. With
    fp16 products, a step whose gradients overflowed changes no weight and is counted in `overflows`.
    """

    def __init__(
        self,
        model: ConvE,
        loss: EntityLoss,
        optimizer: torch.optim.Optimizer,
        *,
        recompute: bool = False,
        rows_at_once: int = 256,
    ) -> None:
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.buffers = Buffers(model.entities.device)
        self.encoder = FusedEncoder(
            model, self.buffers, dtype=loss.dtype, rows_at_once=rows_at_once, recompute=recompute
        )
        self.overflows = 0
        for parameter in model.parameters():
            grad_of(parameter)
        norms = (model.input_norm, model.output_norm)
        # Autograd adds to these instead of overwriting them.
        self._summed = [grad_of(p) for norm in norms if norm is not None for p in norm.parameters()]

    def __call__(self, batch: Batch, want_value: bool = True) -> torch.Tensor | None:
        """Updates the weights; the mean loss (a tensor on the device) if `want_value`."""
        value = self.gradients(batch, want_value)
        if self.loss.dtype == torch.float16 and not self._finite():
            self.overflows += 1
            return value
        self.optimizer.step()
        return value

    def gradients(self, batch: Batch, want_value: bool = True) -> torch.Tensor | None:
        """Leaves this batch's gradients in every parameter's `.grad`."""
        model = self.model
        for grad in self._summed:
            grad.zero_()
        head_rows = model.entities.detach()[batch.heads].requires_grad_()
        relation_rows = model.relations.detach()[batch.relations].requires_grad_()
        image = model.normed_image(head_rows, relation_rows)
        projected = self.encoder.forward(image.detach()).requires_grad_()
        queries = model.finish(projected)
        result = self.loss(
            queries.detach(),
            model.entities.detach(),
            model.biases.detach(),
            batch.positives,
            grad_of(model.entities),
            grad_of(model.biases),
            want_value=want_value,
            buffers=self.buffers,
        )
        torch.autograd.backward(queries, result.d_queries)
        assert projected.grad is not None
        torch.autograd.backward(image, self.encoder.backward(projected.grad))
        assert head_rows.grad is not None and relation_rows.grad is not None
        # The loss has just overwritten the entities' gradients: as heads they add to them.
        _add_rows(grad_of(model.entities), batch.heads, head_rows.grad)
        _add_rows(grad_of(model.relations).zero_(), batch.relations, relation_rows.grad)
        return result.value

    def _finite(self) -> bool:
        # The encoder's gradients alone pass through fp16, and each of them reaches one of these.
        model = self.model
        sums = [grad_of(p).sum() for p in (model.relations, model.conv.weight, model.project.weight)]
        return bool(torch.stack(sums).isfinite().all())


def _add_rows(total: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> None:
    """total[index] += rows, an index as often as it comes, in the same order every time."""
    if total.is_cuda:
        # There index_add_ adds in whatever order the threads arrive; this one sorts first.
        total.index_put_((index,), rows, accumulate=True)
    else:
        total.index_add_(0, index, rows)
