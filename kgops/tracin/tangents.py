"""The convolution's part of the scores by forward-mode differentiation, for few test triples.

⟨∇, ∇'⟩ over the parameters before the feature maps is the directional derivative of the projection along ∇', times
the sample's gradient there. That costs one pass for each (group, test triple); backward mode costs one for each
training triple, which is more while there are fewer tests than triples in a group.
"""

from __future__ import annotations

import torch

from kgops.jobs.chunk_sizes import TRACIN_TANGENT_GROUPS
from kgops.tracin.encoder import Encoder
from kgops.tracin.factors import Factors

__all__ = ["add_by_tangents"]


@torch.no_grad()
def add_by_tangents(encoder: Encoder, out: torch.Tensor, train: Factors, test: Factors) -> None:
    """Adds to `out` (train samples, test samples), in their units, the terms that `Encoder.pull` would give."""
    if not encoder.wants_maps:
        return
    for j in range(len(test.group)):
        moved = _moved_projection(encoder, train, test, j)
        out[:, j] += (train.u * train.spread(moved)).sum(1)


def _moved_projection(encoder: Encoder, train: Factors, test: Factors, j: int) -> torch.Tensor:
    """(train groups, d): derivative of each group's projection along the gradient of test sample j."""
    c, encoded = encoder.config, train.encoded
    kernel, image = _small_parts(encoder, test, j)
    moving = torch.zeros_like(encoded.image)
    # A head vector may also be an output row of the test triple: there its gradient is δ' · x'.
    if test.heads_in is not None:
        q = int(test.group[j])
        weight = test.own[j] * (train.heads == test.tails[j])
        if test.shared is not None and test.shared.delta is not None:
            weight = weight + test.shared.delta[train.heads, q]
        vectors = torch.outer(weight, test.encoded.x[q])
        vectors += (train.heads == test.heads[q])[:, None] * test.heads_in[j]
        moving[:, :, : c.height] += vectors.view(-1, c.channels, c.height, c.width)
    if test.relations_in is not None:
        same = train.relations == test.relations[test.group[j]]
        vectors = same[:, None] * test.relations_in[j]
        moving[:, :, c.height :] += vectors.view(-1, c.channels, c.height, c.width)
    moving *= encoder.input_norm.gain.view(1, -1, 1, 1)
    if image is not None:
        gain, shift = image
        moving += encoder.input_norm.hat(encoded.image) * gain.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)
    moved = moving.new_empty(len(moving), len(encoder.weight))
    with_shift = torch.cat([encoder.kernel, encoder.kernel.new_zeros(len(encoder.kernel), 1)], dim=1)
    kernels = torch.cat([with_shift, kernel], dim=1)
    at_once = len(moving) if moving.is_cuda else TRACIN_TANGENT_GROUPS
    for first in range(0, len(moving), at_once):
        rows = slice(first, first + at_once)
        _project(encoder, kernels, moving[rows], encoded.patches[rows], encoded.maps[rows], moved[rows])
    return moved


def _project(
    encoder: Encoder,
    kernels: torch.Tensor,
    moving: torch.Tensor,
    patches: torch.Tensor,
    maps: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Derivative of the projection of some groups. The maps of all groups at once took more memory than all else."""
    own = encoder.patches(moving)
    own[:, -1] = 0  # the derivative of the constant
    size = (len(moving), encoder.config.output_channels, encoder.places)
    moving_maps = encoder.buffers.take("moving_maps", size, moving.dtype)
    torch.matmul(kernels, torch.cat([own, patches], dim=1), out=moving_maps)
    flat = moving_maps.view(len(moving), -1)
    torch.ops.aten.threshold_backward.grad_input(flat, maps, 0, grad_input=flat)
    torch.mm(flat, encoder.weight.t(), out=out)


def _small_parts(
    encoder: Encoder, test: Factors, j: int
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor] | None]:
    """Derivatives of the folded kernel with its shift, and of the input norm's gain and shift."""
    kernel = torch.zeros(len(encoder.kernel), encoder.taps + 1).to(encoder.kernel)
    if test.conv is None:
        return kernel, None
    parts = encoder.split(test.conv[j])
    norm = encoder.feature_norm
    if "conv.weight" in parts:
        kernel[:, :-1] += norm.gain[:, None] * parts["conv.weight"].view_as(encoder.raw_kernel)
    if "conv.bias" in parts:
        kernel[:, -1] += norm.gain * parts["conv.bias"]
    if "feature_norm.weight" in parts:
        by_hat = norm.inverse * parts["feature_norm.weight"]
        kernel[:, :-1] += by_hat[:, None] * encoder.raw_kernel
        kernel[:, -1] += by_hat * (encoder.raw_bias - norm.mean)
    if "feature_norm.bias" in parts:
        kernel[:, -1] += parts["feature_norm.bias"]
    if "input_norm.weight" not in parts and "input_norm.bias" not in parts:
        return kernel, None
    none = encoder.input_norm.gain.new_zeros(encoder.config.channels)
    return kernel, (parts.get("input_norm.weight", none), parts.get("input_norm.bias", none))
