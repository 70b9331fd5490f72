"""Synchronised batch norm: statistics and gradients over the rows of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from kgops.models.conve import WholeBatch

__all__ = ["shared_norm"]


def shared_norm(whole: WholeBatch, module: nn.BatchNorm1d | nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
    """Training-mode output of `module` for this rank's rows, with statistics over all ranks."""
    count = whole.count(len(x)) * (x.numel() // (len(x) * x.shape[1]))
    sums = whole.total(torch.stack([x.detach().sum(_others(x), dtype=torch.float64), _squares(x)]))
    mean = sums[0] / count
    variance = (sums[1] / count - mean**2).clamp_min(0)
    _follow(module, mean, variance * (count / max(count - 1, 1)))
    normed: torch.Tensor = _Norm.apply(  # type: ignore[no-untyped-call]
        x, module.weight, module.bias, mean, torch.rsqrt(variance + module.eps), count, whole
    )
    return normed


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        gain: torch.Tensor,
        shift: torch.Tensor,
        mean: torch.Tensor,
        inverse: torch.Tensor,
        count: int,
        whole: WholeBatch,
    ) -> torch.Tensor:
        shape = _per_channel(x)
        centred = (x - mean.to(x).view(shape)) * inverse.to(x).view(shape)
        ctx.save_for_backward(centred, gain, inverse)
        ctx.count, ctx.whole = count, whole
        return centred * gain.view(shape) + shift.view(shape)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        """Parameter gradients are of this rank's rows only; they are summed with all other gradients."""
        centred, gain, inverse = ctx.saved_tensors
        shape, others = _per_channel(grad), _others(grad)
        own = torch.stack([grad.sum(others), (grad * centred).sum(others)])
        mean = ctx.whole.total(own.to(torch.float64, copy=True)).to(grad) / ctx.count
        through = grad - mean[0].view(shape) - centred * mean[1].view(shape)
        d_x = through * (gain * inverse.to(gain)).view(shape)
        return d_x, own[1], own[0], None, None, None, None


def _follow(
    module: nn.BatchNorm1d | nn.BatchNorm2d, mean: torch.Tensor, unbiased_variance: torch.Tensor
) -> None:
    assert module.running_mean is not None and module.running_var is not None
    assert module.momentum is not None and module.num_batches_tracked is not None
    module.running_mean.lerp_(mean.to(module.running_mean), module.momentum)
    module.running_var.lerp_(unbiased_variance.to(module.running_var), module.momentum)
    module.num_batches_tracked.add_(1)


def _squares(x: torch.Tensor) -> torch.Tensor:
    return x.detach().double().square().sum(_others(x))


def _others(x: torch.Tensor) -> list[int]:
    """All dimensions except the channels."""
    return [dim for dim in range(x.dim()) if dim != 1]


def _per_channel(x: torch.Tensor) -> list[int]:
    return [1, -1] + [1] * (x.dim() - 2)
