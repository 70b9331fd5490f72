"""Products whose factors are rounded to a shorter format first; their sums stay in the long one."""

from __future__ import annotations

import torch

__all__ = ["product"]


def product(a: torch.Tensor, b: torch.Tensor, low: torch.dtype | None) -> torch.Tensor:
    """a @ b in a's own number format; batched like `torch.matmul`."""
    if low is None or low == a.dtype:
        return torch.matmul(a, b)
    if a.device.type == "cpu" and low == torch.float16:
        # The CPU sums fp16 in fp16, a card in fp32: only the rounding of the factors is the same.
        return torch.matmul(a.to(low).to(a.dtype), b.to(low).to(a.dtype))
    return torch.matmul(a.to(low), b.to(low)).to(a.dtype)
