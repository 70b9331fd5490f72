"""Upper bound of a convolution's temporary memory on a CPU: oneDNN's copies in blocks of channels.

Measured to the byte with torch 2.13, float32, one thread. With AVX-512 blocks have 16 channels, and 8 for the gradient
of weights with 4 to 15 input channels. With AVX2 they have 8. Below that there are none. The bound is the largest of
these on every CPU, since a plan needs enough memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

_WIDE, _NARROW = 16, 8  # channels in a block
_AS_IT_IS = 3  # input channels that AVX-512 reads without a copy


def inside_forward(x: torch.Tensor, weight: torch.Tensor, *rest: Any, **more: Any) -> int:
    """Temporary bytes of the forward pass, which writes its result in blocks and copies it out of them."""
    transposed, result_shape = rest[4], _result_shape(x, weight, rest[1], rest[2], rest[3])
    if transposed or not _is_packed(x):
        return 0
    return max(_forward(x, weight, result_shape, group) for group in (_WIDE, _NARROW))


def inside_backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *rest: Any, **more: Any
) -> int:
    """Temporary bytes of the backward pass, without the gradients; too many where a stride skips positions."""
    transposed, wanted = rest[4], rest[7]
    if transposed or not _is_packed(x):
        return 0
    of_weights = [_weights_gradient(gradient, x, weight, _NARROW)]
    if x.shape[1] >= _WIDE:
        of_weights.append(_weights_gradient(gradient, x, weight, _WIDE))
    elif x.shape[1] <= _AS_IT_IS:
        of_weights.append(
            _grouped(gradient.shape, _WIDE) + 4 * _up(weight.shape[0], _WIDE) * weight[0].numel()
        )
    most = max(of_weights)
    if wanted[0]:
        # The input gradient is computed first, made contiguous, and lives while the weight gradient is computed.
        of_input, copied = _grouped(x.shape, _WIDE), 4 * x.numel()
        made_from = _grouped(gradient.shape, _WIDE) + _packed(weight, _WIDE)
        most = max(of_input + max(made_from, copied), copied + most)
    sizes = (x.numel(), weight.numel(), weight.shape[0])
    made = sum(4 * size for size, want in zip(sizes, wanted, strict=True) if want)
    return max(0, most - made)


def _forward(x: torch.Tensor, weight: torch.Tensor, result_shape: Sequence[int], group: int) -> int:
    grouped = _grouped(result_shape, group)
    copied_in = _grouped(x.shape, group) + _packed(weight, group) if x.shape[1] >= group else 0
    return max(grouped, grouped + copied_in - 4 * prod(result_shape))


def _weights_gradient(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, group: int) -> int:
    return _grouped(gradient.shape, group) + _grouped(x.shape, group) + _packed(weight, group)


def _is_packed(x: torch.Tensor) -> bool:
    return x.dtype == torch.float32 and x.dim() == 4


def _grouped(shape: Sequence[int], group: int) -> int:
    rows, channels, *plane = shape
    return 4 * rows * _up(channels, group) * prod(plane)


def _packed(weight: torch.Tensor, group: int) -> int:
    out, entering, *kernel = weight.shape
    return 4 * _up(out, group) * _up(entering, group) * prod(kernel)


def _up(channels: int, group: int) -> int:
    return -(-channels // group) * group


def _result_shape(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    geometry = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=False)
    plane = [
        (size + 2 * pad - far * (kernel - 1) - 1) // step + 1 for size, kernel, step, pad, far in geometry
    ]
    return [x.shape[0], weight.shape[0], *plane]
