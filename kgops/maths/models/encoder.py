"""Encoder of ConvE's training step: convolution, norm, ReLU, dropout, projection.

Computes the layers of `ConvE` with a single pass over the feature maps:

- The batch statistics of the maps follow from the image patches. With patches p (kernel size k), a channel z = w·p + c
  has mean w·E[p] + c and variance w Cov(p) wᵀ. A k x k covariance is cheap, so the norm is folded into the kernel
  *before* the maps exist.
- Channel dropout scales a channel by a mask m ≥ 0. As relu(m z) = m relu(z), it moves into the kernel too, one kernel
  per sample.

A matrix product, a clamp in place, and the projection remain. Buffers are reused: page faults of a new 10 MiB
block take longer than the product that fills it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kgops.maths.models.conve import ConvE
from kgops.maths.models.products import add_product, column_sums, mm_into, slices
from kgops.workloads.train.models import ConvEConfig


class Buffers:
    """Scratch tensors kept between steps, by name; a smaller batch uses a slice of a larger one."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._flat: dict[tuple[str, torch.dtype], torch.Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        size = 1
        for side in shape:
            size *= side
        flat = self._flat.get((name, dtype))
        if flat is None or flat.numel() < size:
            flat = None  # free the old one first, so that both never live at once
            self._flat.pop((name, dtype), None)
            flat = torch.empty(size, dtype=dtype, device=self.device)
            self._flat[name, dtype] = flat
        return flat[:size].view(shape)

    def tensors(self) -> list[torch.Tensor]:
        return list(self._flat.values())

    @property
    def nbytes(self) -> int:
        return sum(flat.numel() * flat.element_size() for flat in self._flat.values())


_Saved = tuple[torch.Tensor | None, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class FusedEncoder:
    """Forward and backward from the normed image to the projection, for a model in training mode.

    `backward` writes the gradients of `conv`, `feature_norm` and `project` into their `.grad` and
    returns the image's. With `recompute` the feature maps are not kept but recomputed, chunk by chunk.
    `wrap` compiles the functions made of many small operations.
    """

    def __init__(
        self,
        model: ConvE,
        buffers: Buffers,
        *,
        dtype: torch.dtype = torch.float32,
        rows_at_once: int = 256,
        recompute: bool = False,
        wrap: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function,
    ) -> None:
        self.model = model
        self.buffers = buffers
        self._fold, self._image_grad = wrap(_fold), wrap(_sum_of_taps)
        self.dtype = dtype
        self.rows_at_once = rows_at_once
        self.recompute = recompute
        c = model.config
        self._taps = c.channels * c.kernel_height * c.kernel_width
        self._places = c.map_height * c.map_width
        self._saved: _Saved | None = None

    @torch.no_grad()
    def forward(self, image: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """(batch, channels, 2 · height, width) → (batch, embedding_dim), before the projection's bias.

        `mask` (batch, output_channels) replaces the random channel dropout.
        """
        c, batch, model = self.model.config, len(image), self.model
        if mask is None:
            mask = self._mask(batch, image)
        patches = self._patches(image)
        moments = self._moments(patches) if model.feature_norm is not None else None
        kernel = self._kernel(moments, batch * self._places)
        kernels = self.buffers.take("kernels", (batch, *kernel.shape), self.dtype)
        kernels.copy_(mask[:, :, None] * kernel.to(mask.dtype))
        weight = self._weight()
        out = self.buffers.take("projected", (batch, c.embedding_dim), self.dtype)
        kept = min(batch, self.rows_at_once) if self.recompute else batch
        maps = self.buffers.take("maps", (kept, c.output_channels, self._places), self.dtype)
        for rows in slices(batch, kept):
            part = self._maps(kernels[rows], patches[rows], maps)
            mm_into(out[rows], part.flatten(1), weight.t())
        self._saved = (moments, mask, patches, kernels, maps, weight)
        return out.to(image.dtype) + model.project.bias

    @torch.no_grad()
    def backward(self, grad: torch.Tensor) -> torch.Tensor:
        """From the projection's gradient to the image's; parameter gradients go where `.grad` is."""
        assert self._saved is not None, "backward follows forward"
        moments, mask, patches, kernels, maps, weight = self._saved
        self._saved = None
        c, batch, project = self.model.config, len(grad), self.model.project
        grad_of(project.bias).copy_(column_sums(grad))
        unit = _unit(grad.abs().amax()) if self.dtype == torch.float16 else None
        low = (grad if unit is None else grad / unit).to(self.dtype)
        d_weight = grad_of(project.weight)
        if not self.recompute:
            self._product(low.t(), maps.flatten(1), d_weight)
        step = min(batch, self.rows_at_once)
        d_flat = self.buffers.take("d_maps", (step, c.features), self.dtype)
        d_kernels = self.buffers.take("d_kernels", tuple(kernels.shape), self.dtype)
        d_patches = self.buffers.take("d_patches", (batch, self._taps, self._places), self.dtype)
        for rows in slices(batch, step):
            own, d_part = kernels[rows], d_flat[: len(low[rows])]
            if self.recompute:
                part = self._maps(own, patches[rows], maps)
                self._product(low[rows].t(), part.flatten(1), d_weight, add=rows.start > 0)
            else:
                part = maps[rows]
            mm_into(d_part, low[rows], weight)
            d_maps = d_part.view_as(part)
            # A map entry that the clamp or the mask set to 0 has no gradient.
            torch.ops.aten.threshold_backward.grad_input(d_maps, part, 0, grad_input=d_maps)
            torch.bmm(d_maps, patches[rows].transpose(1, 2), out=d_kernels[rows])
            torch.bmm(own[:, :, : self._taps].transpose(1, 2), d_maps, out=d_patches[rows])
        d_kernel = torch.einsum("bo,bok->ok", mask, d_kernels.to(mask.dtype))
        through = self._kernel_backward(d_kernel, moments, batch * self._places)
        if through is not None:
            d_patches.baddbmm_(through.to(self.dtype).expand(batch, -1, -1), patches)
        d_image: torch.Tensor = self._image_grad(d_patches, grad.dtype, c)
        if unit is not None:
            norm = self.model.feature_norm
            scaled = [project.weight, self.model.conv.weight, self.model.conv.bias]
            scaled += [] if norm is None else [norm.weight, norm.bias]
            for parameter in scaled:
                assert parameter is not None
                grad_of(parameter).mul_(unit)
            d_image.mul_(unit)
        return d_image

    def _product(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, add: bool = False) -> None:
        """out = a @ b, or out += a @ b, where `out` may be wider than the factors."""
        if a.dtype == out.dtype:
            add_product(out, a, b) if add else mm_into(out, a, b)
            return
        low = torch.mm(a, b, out=self.buffers.take("low_product", tuple(out.shape), a.dtype))
        out.add_(low) if add else out.copy_(low)

    def _mask(self, rows: int, like: torch.Tensor) -> torch.Tensor:
        """Channel dropout mask: 0, or the factor that compensates for dropped channels."""
        keep = 1 - self.model.config.feature_map_dropout
        mask = torch.empty(rows, self.model.config.output_channels, dtype=like.dtype, device=like.device)
        return mask.bernoulli_(keep).div_(keep)

    def _weight(self) -> torch.Tensor:
        weight = self.model.project.weight
        if weight.dtype == self.dtype:
            return weight.detach()
        return self.buffers.take("weight", tuple(weight.shape), self.dtype).copy_(weight)

    def _patches(self, image: torch.Tensor) -> torch.Tensor:
        """(batch, taps + 1, positions): the input of each kernel tap at each position; the last row is 1."""
        c, batch = self.model.config, len(image)
        patches = self.buffers.take("patches", (batch, self._taps + 1, self._places), self.dtype)
        windows = image.unfold(2, c.kernel_height, 1).unfold(3, c.kernel_width, 1)
        shape = (batch, c.channels, c.kernel_height, c.kernel_width, c.map_height, c.map_width)
        patches[:, : self._taps].view(shape).copy_(windows.permute(0, 1, 4, 5, 2, 3))
        patches[:, self._taps] = 1
        return patches

    def _maps(self, kernels: torch.Tensor, patches: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        part = out[: len(kernels)]
        torch.bmm(kernels, patches, out=part)
        return part.clamp_(min=0)

    def _moments(self, patches: torch.Tensor) -> torch.Tensor:
        """Sums of products of every two rows of the patches: (taps + 1, taps + 1), in float64."""
        side = self._taps + 1
        total = torch.zeros(side, side, dtype=torch.float64, device=patches.device)
        for rows in slices(len(patches), self.rows_at_once):
            part = patches[rows]
            if part.dtype in (torch.float16, torch.bfloat16):
                part = self.buffers.take("wide", tuple(part.shape), torch.float32).copy_(part)
            total += torch.bmm(part, part.transpose(1, 2)).sum(0, dtype=torch.float64)
        return total

    def _kernel(self, moments: torch.Tensor | None, count: int) -> torch.Tensor:
        """Kernel and shift with the norm folded in: (output channels, taps + 1), in float64."""
        conv, norm = self.model.conv, self.model.feature_norm
        assert conv.bias is not None
        kernel, shift = conv.weight.flatten(1).double(), conv.bias.double()
        if moments is None or norm is None:
            return torch.cat([kernel, shift[:, None]], dim=1)
        self._update_statistics(kernel, shift, moments, count)
        folded: torch.Tensor = self._fold(
            kernel, norm.weight.double(), norm.bias.double(), moments, count, norm.eps
        )
        return folded

    def _kernel_backward(
        self, d_kernel: torch.Tensor, moments: torch.Tensor | None, count: int
    ) -> torch.Tensor | None:
        """Gradients of kernel and norm; returns the patches' gradient through the statistics."""
        conv, norm = self.model.conv, self.model.feature_norm
        assert conv.bias is not None
        if moments is None or norm is None:
            grad_of(conv.weight).copy_(d_kernel[:, :-1].view_as(conv.weight))
            grad_of(conv.bias).copy_(d_kernel[:, -1])
            return None
        with torch.enable_grad():
            leaves = [
                t.detach().double().requires_grad_()
                for t in (conv.weight.flatten(1), norm.weight, norm.bias, moments)
            ]
            folded = self._fold(leaves[0], leaves[1], leaves[2], leaves[3], count, norm.eps)
            d_conv, d_gain, d_shift, d_moments = _engine(
                folded, d_kernel.double(), tuple(leaves), accumulate_grad=False
            )
        grad_of(conv.weight).copy_(d_conv.view_as(conv.weight))
        grad_of(conv.bias).zero_()  # the norm subtracts the mean, so the bias has no effect
        grad_of(norm.weight).copy_(d_gain)
        grad_of(norm.bias).copy_(d_shift)
        return (d_moments + d_moments.t())[:-1]

    def _update_statistics(
        self, kernel: torch.Tensor, bias: torch.Tensor, moments: torch.Tensor, count: int
    ) -> None:
        norm = self.model.feature_norm
        assert norm is not None and norm.running_mean is not None and norm.running_var is not None
        assert norm.momentum is not None and norm.num_batches_tracked is not None
        mean, variance = _statistics(kernel, moments, count)
        unbiased = variance * (count / max(count - 1, 1))
        norm.running_mean.lerp_((mean + bias).to(norm.running_mean), norm.momentum)
        norm.running_var.lerp_(unbiased.to(norm.running_var), norm.momentum)
        norm.num_batches_tracked.add_(1)


def _sum_of_taps(d_patches: torch.Tensor, dtype: torch.dtype, c: ConvEConfig) -> torch.Tensor:
    # Not a method: an encoder that holds its bound method is a reference cycle, and its buffers stay allocated.
    batch = len(d_patches)
    grad = torch.zeros(batch, c.channels, 2 * c.height, c.width, dtype=dtype, device=d_patches.device)
    taps = d_patches.view(batch, c.channels, c.kernel_height, c.kernel_width, c.map_height, c.map_width)
    for down in range(c.kernel_height):
        for right in range(c.kernel_width):
            grad[:, :, down : down + c.map_height, right : right + c.map_width] += taps[:, :, down, right]
    return grad


def _unit(largest: torch.Tensor) -> torch.Tensor:
    """The largest power of two up to the largest entry: the scale of fp16 gradients.

    A usual loss scale is one number for all steps, raised until something overflows. A scale per step keeps
    small gradients as exact as large ones and never overflows.
    """
    largest = largest.clamp_min(torch.finfo(largest.dtype).tiny)
    # Not exp2 of the logarithm: on a GPU its first call compiles a kernel.
    return largest / (2 * torch.frexp(largest).mantissa)


def grad_of(parameter: torch.Tensor) -> torch.Tensor:
    """The tensor a gradient is written to, reused in every step."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def add_rows(total: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> None:
    """total[index] += rows, with repeated indices, in a deterministic order."""
    if total.is_cuda:
        # On a GPU index_add_ adds in the order of threads; index_put_ sorts first.
        total.index_put_((index,), rows, accumulate=True)
    else:
        total.index_add_(0, index, rows)


def run_backward(tensor: torch.Tensor, gradient: torch.Tensor) -> None:
    """`torch.autograd.backward` without its check of the gradient's shape. That check imports code for torch.compile,
    which takes a third of a second and 34 MiB. The engine makes the same check."""
    _engine(tensor, gradient, (), accumulate_grad=True)


def _engine(
    tensor: torch.Tensor, gradient: torch.Tensor, leaves: tuple[torch.Tensor, ...], *, accumulate_grad: bool
) -> tuple[torch.Tensor, ...]:
    """The leaves' gradients; none if accumulated: they are added to the `.grad` of all that the tensor is made of."""
    found: tuple[torch.Tensor, ...] = torch.autograd.Variable._execution_engine.run_backward(
        *((tensor,), (gradient,), False, False, leaves),
        allow_unreachable=accumulate_grad,
        accumulate_grad=accumulate_grad,
    )
    return found


def _statistics(kernel: torch.Tensor, moments: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of every map over batch and positions, without the convolution's bias."""
    patch_mean = moments[-1, :-1] / count
    covariance = moments[:-1, :-1] / count - torch.outer(patch_mean, patch_mean)
    # Rounding may leave a constant map a variance just below 0.
    return kernel @ patch_mean, ((kernel @ covariance) * kernel).sum(1).clamp_min(0)


def _fold(
    kernel: torch.Tensor,
    gain: torch.Tensor,
    shift: torch.Tensor,
    moments: torch.Tensor,
    count: int,
    eps: float,
) -> torch.Tensor:
    mean, variance = _statistics(kernel, moments, count)
    scale = gain * torch.rsqrt(variance + eps)
    return torch.cat([scale[:, None] * kernel, (shift - scale * mean)[:, None]], dim=1)
