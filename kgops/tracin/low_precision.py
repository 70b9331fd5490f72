"""Products whose factors are rounded to a shorter format first."""

from __future__ import annotations

import torch

__all__ = ["product"]


def product(a: torch.Tensor, b: torch.Tensor, low: torch.dtype | None) -> torch.Tensor:
    """a @ b in a's own number format, batched like `torch.matmul`; `b` may have been rounded before.

    Sums are float32. On a GPU two matrices keep them; elsewhere the result is rounded once more.
    """
    if low is None or low == a.dtype:
        return torch.matmul(a, b)
    if a.device.type == "cpu" and low == torch.float16:
        # The CPU sums fp16 in fp16, a GPU in fp32: only the rounding of the factors is to be the same.
        return torch.matmul(a.to(low).to(a.dtype), b.to(low).to(a.dtype))
    if a.is_cuda and a.dim() == b.dim() == 2 and a.dtype == torch.float32:
        return torch.mm(a.to(low), b.to(low), out_dtype=torch.float32)
    return torch.matmul(a.to(low), b.to(low)).to(a.dtype)
