"""Number formats of the large products: what was asked for, and what this device can honour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kgops.errors import Usage

__all__ = ["PRECISIONS", "Precision", "resolve_precision"]

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "auto")
_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """Weights, optimizer and sums over entities stay float32 under every one of these."""

    requested: str
    effective: str
    reason: str | None

    @property
    def dtype(self) -> torch.dtype:
        return _DTYPES[self.effective]

    @property
    def scaled(self) -> bool:
        """Whether gradients need scaling on their way through: fp16 alone has too small a range."""
        return self.effective == "fp16"

    def apply(self) -> None:
        """Sets what torch keeps globally; call once, before the first product."""
        torch.set_float32_matmul_precision("high" if self.effective == "tf32" else "highest")
        backends: Any = torch.backends
        backends.cudnn.allow_tf32 = self.effective == "tf32"
        # Otherwise a long fp16 sum may be cut into pieces that are rounded to fp16 in between.
        backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def resolve_precision(requested: str, device: torch.device | str) -> Precision:
    if requested not in PRECISIONS:
        raise Usage(f"precision '{requested}' is unknown.", hint=f"choose one of {', '.join(PRECISIONS)}.")
    device = torch.device(device)
    if device.type == "cuda":
        return _on_cuda(requested, torch.cuda.get_device_capability(device))
    return _on_cpu(requested)


def _on_cuda(requested: str, capability: tuple[int, int]) -> Precision:
    card = f"compute capability {capability[0]}.{capability[1]}"
    if requested == "auto":
        best = "bf16" if capability >= (8, 0) else "fp16" if capability >= (7, 0) else "fp32"
        return Precision(requested, best, f"the fastest this card has ({card})")
    if requested == "bf16" and capability < (8, 0):
        return Precision(requested, "fp32", f"bf16 needs compute capability 8.0; this card has {card}")
    if requested == "tf32" and capability < (8, 0):
        return Precision(requested, "fp32", f"TF32 needs compute capability 8.0; this card has {card}")
    return Precision(requested, requested, None)


def _on_cpu(requested: str) -> Precision:
    if requested == "auto":
        return Precision(requested, "fp32", "no CUDA device")
    if requested == "tf32":
        return Precision(requested, "fp32", "TF32 is a number format of CUDA cards; no CUDA device")
    if requested == "fp16":
        return Precision(requested, "fp32", "a CPU sums fp16 products in fp16, which loses gradients")
    if requested == "bf16" and not cpu_has_bf16():
        return Precision(requested, "fp32", "this CPU has no bf16 instructions (AVX512-BF16 or AMX)")
    return Precision(requested, requested, None)


def cpu_has_bf16() -> bool:
    """Whether bf16 products run in hardware; emulated they are slower than float32."""
    ask = getattr(torch.cpu, "get_capabilities", None)
    known = ask() if ask is not None else {}
    return any(known.get(name) for name in ("avx512_bf16", "amx_bf16", "sve_bf16"))
