"""Matrix products in low precision: factors rounded to fp16 or bf16, sums in fp32."""

from __future__ import annotations

import torch

from kgops.maths.models.products import mm


def product(a: torch.Tensor, b: torch.Tensor, low: torch.dtype | None) -> torch.Tensor:
    """a @ b in a's dtype, batched like `torch.matmul`; `b` may be rounded already.

    Sums are float32. On a GPU, the product of two matrices keeps them; otherwise the result is rounded once more.
    """
    if low is None or low == a.dtype:
        return mm(a, b) if a.dim() == b.dim() == 2 else torch.matmul(a, b)
    if a.device.type == "cpu" and low == torch.float16:
        # The CPU sums fp16 in fp16, a GPU in fp32: round the factors alone, so that both agree.
        return torch.matmul(a.to(low).to(a.dtype), b.to(low).to(a.dtype))
    if a.is_cuda and a.dim() == b.dim() == 2 and a.dtype == torch.float32:
        return torch.mm(a.to(low), b.to(low), out_dtype=torch.float32)
    return torch.matmul(a.to(low), b.to(low)).to(a.dtype)
