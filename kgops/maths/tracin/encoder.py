"""ConvE's encoder for TracIn: forward from (head, relation) to the query vector, and backward, with norms folded.

The forward pass depends only on (head, relation), so it runs once for each distinct pair (a *group*). The backward pass
runs for each triple. It gives gradients of the unfolded parameters: norms are fixed in evaluation, so both are sums
over the same products.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from kgops.maths.models.conve import ConvE
from kgops.maths.models.encoder import Buffers
from kgops.maths.models.products import addmm, mm_buffered, product
from kgops.maths.tracin.models import all_parameters
from kgops.workloads.tracin.options import TRACIN_ROWS_AT_ONCE
from kgops.workloads.train.models import ConvEConfig

_CONV_PART = (
    "conv.weight",
    "conv.bias",
    "feature_norm.weight",
    "feature_norm.bias",
    "input_norm.weight",
    "input_norm.bias",
)
_DEEP = (*_CONV_PART, "entities", "relations")


@dataclass(frozen=True)
class Norm:
    """A batch norm in evaluation: y = gain · x + shift, and x̂ = (x - mean) · inverse."""

    gain: torch.Tensor
    shift: torch.Tensor
    mean: torch.Tensor
    inverse: torch.Tensor

    @classmethod
    def of(cls, norm: nn.BatchNorm1d | nn.BatchNorm2d | None, like: torch.Tensor, width: int) -> Norm:
        if norm is None:
            one, zero = like.new_ones(width), like.new_zeros(width)
            return cls(one, zero, zero, one)
        assert norm.running_mean is not None and norm.running_var is not None
        # In float64, so that folding does not cost digits of the scores.
        mean, variance = norm.running_mean.double(), norm.running_var.double()
        inverse = torch.rsqrt(variance + norm.eps)
        gain = norm.weight.detach().double() * inverse
        shift = norm.bias.detach().double() - mean * gain
        return cls(gain.to(like), shift.to(like), mean.to(like), inverse.to(like))

    def hat(self, x: torch.Tensor) -> torch.Tensor:
        """Over the second dimension, as batch norms do."""
        shape = (1, -1) + (1,) * (x.dim() - 2)
        return (x - self.mean.view(shape)) * self.inverse.view(shape)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        shape = (1, -1) + (1,) * (x.dim() - 2)
        return torch.addcmul(self.shift.view(shape), x, self.gain.view(shape))


@dataclass
class Encoded:
    """Activations of a block's groups for the backward pass; first dimension: groups."""

    image: torch.Tensor  # before the input norm
    patches: torch.Tensor  # of the normed image, and a row of ones: (groups, taps + 1, places)
    maps: torch.Tensor  # after ReLU, flat
    projected: torch.Tensor  # before the output norm
    x: torch.Tensor  # query vector, multiplied with the tails


@dataclass
class Pulled:
    """Gradients of samples: of the small parameters, concatenated, and of the input vectors."""

    conv: torch.Tensor | None
    heads: torch.Tensor | None
    relations: torch.Tensor | None


class Encoder:
    """The part of a model before the tails; `names`: parameters whose gradients count."""

    low: torch.dtype | None = None  # format that factors of products are rounded to; None: no rounding
    entities_low: torch.Tensor | None = None
    has_layers = True  # False where the backward pass is so cheap that `tangents` saves nothing

    def __init__(
        self,
        model: ConvE,
        names: Collection[str] | None = None,
        *,
        buffers: Buffers | None = None,
        rows_at_once: int = TRACIN_ROWS_AT_ONCE,
        low: torch.dtype | None = None,
    ) -> None:
        self.low = low
        self.names = all_parameters(model) if names is None else frozenset(names)
        self.config: ConvEConfig = model.config
        c = model.config
        self.entities, self.biases = model.entities.detach(), model.biases.detach()
        self.relations = model.relations.detach()
        like = self.entities
        self.weight, self.bias = model.project.weight.detach(), model.project.bias.detach()
        # Rounded once, not for each block.
        self.weight_low = self.weight if low is None else self.weight.to(low)
        self.entities_low = None if low is None else self.entities.to(low)
        self.input_norm = Norm.of(model.input_norm, like, c.channels)
        self.feature_norm = Norm.of(model.feature_norm, like, c.output_channels)
        self.output_norm = Norm.of(model.output_norm, like, c.embedding_dim)
        assert model.conv.bias is not None
        self.raw_kernel, self.raw_bias = model.conv.weight.detach().flatten(1), model.conv.bias.detach()
        self.kernel = self.feature_norm.gain[:, None] * self.raw_kernel
        shift = torch.addcmul(self.feature_norm.shift, self.raw_bias, self.feature_norm.gain)
        self._kernel_and_shift = torch.cat([self.kernel, shift[:, None]], dim=1)
        self.buffers = buffers or Buffers(like.device)
        self.rows_at_once = rows_at_once
        self.wants_maps = any(name in self.names for name in _DEEP)
        self.taps, self.places = self.kernel.shape[1], c.map_height * c.map_width

    @torch.no_grad()
    def encode(self, heads: torch.Tensor, relations: torch.Tensor, *, keep: bool = False) -> Encoded:
        """With `keep`, the maps get their own memory; otherwise the next call overwrites them."""
        c, groups = self.config, len(heads)
        shape = (groups, c.channels, c.height, c.width)
        image = torch.cat([self.entities[heads].view(shape), self.relations[relations].view(shape)], dim=2)
        patches = self.patches(self.input_norm(image))
        size = (groups, c.output_channels, self.places)
        maps = image.new_empty(size) if keep else self.buffers.take("maps", size, image.dtype)
        if self.low is None:
            torch.matmul(self._kernel_and_shift, patches, out=maps)
        else:
            maps.copy_(product(self._kernel_and_shift, patches, self.low))
        flat = maps.relu_().view(groups, -1)
        if self.low is None:
            projected = addmm(self.bias, flat, self.weight.t(), out=flat.new_empty(groups, len(self.bias)))
        else:
            projected = product(flat, self.weight_low.t(), self.low).add_(self.bias)
        return Encoded(image, patches, flat, projected, self.output_norm(projected).relu_())

    def patches(self, normed: torch.Tensor) -> torch.Tensor:
        """im2col with a row of ones: (groups, taps + 1, places)."""
        c, groups = self.config, len(normed)
        patches = normed.new_empty(groups, self.taps + 1, self.places)
        windows = normed.unfold(2, c.kernel_height, 1).unfold(3, c.kernel_width, 1)
        shape = (groups, c.channels, c.kernel_height, c.kernel_width, c.map_height, c.map_width)
        patches[:, :-1].view(shape).copy_(windows.permute(0, 1, 4, 5, 2, 3))
        patches[:, -1] = 1  # so that one product gives the gradients of kernel and bias
        return patches

    @torch.no_grad()
    def output_gradients(
        self, encoded: Encoded, group: torch.Tensor, d_x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Gradients at the projection and of the output norm, from the gradient at x, which is overwritten."""
        d_x.mul_((encoded.x > 0).index_select(0, group))
        parts = []
        if "output_norm.weight" in self.names:
            hat = self.output_norm.hat(encoded.projected)
            parts.append(d_x * hat.index_select(0, group))
        if "output_norm.bias" in self.names:
            parts.append(d_x)
        return d_x * self.output_norm.gain, torch.cat(parts, dim=1) if parts else None

    @torch.no_grad()
    def pull(self, encoded: Encoded, group: torch.Tensor, u: torch.Tensor) -> Pulled:
        """Gradients of convolution, earlier norms, head and relation, from the gradient at the projection."""
        if not self.wants_maps:
            return Pulled(None, None, None)
        parts = [
            self._pull_some(encoded, group[i : i + self.rows_at_once], u[i : i + self.rows_at_once])
            for i in range(0, len(u), self.rows_at_once)
        ]
        joined = [torch.cat(side) if len(side) > 1 else side[0] for side in zip(*parts, strict=True)]
        conv, heads, relations = joined
        return Pulled(
            conv if conv.shape[1] else None,
            heads if "entities" in self.names else None,
            relations if "relations" in self.names else None,
        )

    def _pull_some(
        self, encoded: Encoded, group: torch.Tensor, u: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        c, rows = self.config, len(u)

        def buffer() -> torch.Tensor:
            return self.buffers.take("d_maps", (rows, encoded.maps.shape[1]), u.dtype)

        if self.low is None:
            d_flat = mm_buffered(u, self.weight, buffer)
        else:
            d_flat = buffer().copy_(product(u, self.weight_low, self.low))
        d_maps = d_flat.view(rows, c.output_channels, self.places)
        if u.is_cuda or self.low is not None:
            maps = self.buffers.take("maps_again", tuple(d_flat.shape), u.dtype)
            torch.index_select(encoded.maps, 0, group, out=maps)
            torch.ops.aten.threshold_backward.grad_input(d_flat, maps, 0, grad_input=d_flat)
            sums = product(d_maps, encoded.patches.index_select(0, group).transpose(1, 2), self.low)
        else:
            sums = _masked_sums(encoded, group, d_maps)
        taps = product(self.kernel.t(), d_maps, self.low)
        d_normed = self._fold(taps)
        conv = self._small(sums, d_normed, encoded.image, group)
        d_image = d_normed * self.input_norm.gain.view(1, -1, 1, 1)
        return conv, d_image[:, :, : c.height].flatten(1), d_image[:, :, c.height :].flatten(1)

    def _fold(self, taps: torch.Tensor) -> torch.Tensor:
        c = self.config
        if taps.is_cuda:
            return F.fold(taps, (2 * c.height, c.width), (c.kernel_height, c.kernel_width))
        # A third of the time that `fold` takes on a CPU: first along rows, then along columns.
        across = (-1, c.channels, c.kernel_height, c.kernel_width, c.map_height, c.map_width)
        taps = taps.view(across)
        rows = taps.new_zeros(len(taps), c.channels, c.kernel_height, c.map_height, c.width)
        for x in range(c.kernel_width):
            rows[..., x : x + c.map_width] += taps[:, :, :, x]
        image = taps.new_zeros(len(taps), c.channels, 2 * c.height, c.width)
        for y in range(c.kernel_height):
            image[:, :, y : y + c.map_height] += rows[:, :, y]
        return image

    def _small(
        self, sums: torch.Tensor, d_normed: torch.Tensor, image: torch.Tensor, group: torch.Tensor
    ) -> torch.Tensor:
        """The gradients of the chosen parameters in `_CONV_PART`, concatenated."""
        norm, by_tap, total = self.feature_norm, sums[:, :, :-1], sums[:, :, -1]
        parts: list[torch.Tensor] = []
        if "conv.weight" in self.names:
            parts.append((by_tap * norm.gain[:, None]).flatten(1))
        if "conv.bias" in self.names:
            parts.append(total * norm.gain)
        if "feature_norm.weight" in self.names:
            # Σ d · ẑ over places, without ẑ: z is the kernel times patches, which `sums` has summed.
            against = (by_tap * self.raw_kernel).sum(2) + total * (self.raw_bias - norm.mean)
            parts.append(against * norm.inverse)
        if "feature_norm.bias" in self.names:
            parts.append(total)
        if "input_norm.weight" in self.names:
            hat = self.input_norm.hat(image).index_select(0, group)
            parts.append((d_normed * hat).sum((2, 3)))
        if "input_norm.bias" in self.names:
            parts.append(d_normed.sum((2, 3)))
        return torch.cat(parts, dim=1) if parts else sums.new_empty(len(sums), 0)

    def split(self, conv: torch.Tensor) -> dict[str, torch.Tensor]:
        """One sample's vector of `Pulled.conv`, by parameter."""
        c = self.config
        sizes = dict.fromkeys(_CONV_PART, c.output_channels)
        sizes |= {"conv.weight": self.raw_kernel.numel()}
        sizes |= dict.fromkeys(("input_norm.weight", "input_norm.bias"), c.channels)
        names = [name for name in _CONV_PART if name in self.names]
        return dict(zip(names, torch.split(conv, [sizes[name] for name in names]), strict=True))


def _masked_sums(encoded: Encoded, group: torch.Tensor, d_maps: torch.Tensor) -> torch.Tensor:
    """Masks the gradients at the maps where ReLU was off, in place; their products with patches.

    By runs of samples of one group, whose maps and patches need no copy for each sample then.
    """
    channels, taps = d_maps.shape[1], encoded.patches.shape[1]
    patches, sums = encoded.patches.transpose(1, 2), d_maps.new_empty(len(d_maps), channels, taps)
    groups, counts = torch.unique_consecutive(group, return_counts=True)
    first = 0
    for g, count in zip(groups.tolist(), counts.tolist(), strict=True):
        some = d_maps[first : first + count]
        maps = encoded.maps[g].view(1, channels, -1).expand_as(some)
        torch.ops.aten.threshold_backward.grad_input(some, maps, 0, grad_input=some)
        torch.mm(some.view(-1, some.shape[2]), patches[g], out=sums[first : first + count].view(-1, taps))
        first += count
    return sums
