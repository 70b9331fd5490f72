"""Number formats of the large products: what was asked for, and what this device can honour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kgops.errors import Usage
from kgops.jobs.on_device import WorkerDevice, training_precision

__all__ = ["PRECISIONS", "Precision", "place_of", "resolve_precision"]

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "auto")
_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """Weights, optimizer and sums over entities stay float32 under every one of these."""

    requested: str
    applied: str
    reason: str | None

    @property
    def dtype(self) -> torch.dtype:
        return _DTYPES[self.applied]

    @property
    def scaled(self) -> bool:
        """Whether gradients need scaling on their way through: fp16 alone has too small a range."""
        return self.applied == "fp16"

    def apply(self) -> None:
        """Sets what torch keeps globally; call once, before the first product."""
        torch.set_float32_matmul_precision("high" if self.applied == "tf32" else "highest")
        backends: Any = torch.backends
        backends.cudnn.allow_tf32 = self.applied == "tf32"
        # Otherwise a long fp16 sum may be cut into pieces that are rounded to fp16 in between.
        backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def resolve_precision(requested: str, device: torch.device | str) -> Precision:
    if requested not in PRECISIONS:
        raise Usage(f"precision '{requested}' is unknown.", hint=f"choose one of {', '.join(PRECISIONS)}.")
    return Precision(requested, *training_precision(requested, place_of(device)))


def place_of(device: torch.device | str) -> WorkerDevice:
    """The device as far as options depend on it."""
    device = torch.device(device)
    if device.type == "cuda":
        return WorkerDevice(torch.cuda.get_device_capability(device))
    return WorkerDevice(has_bf16=cpu_has_bf16())


def cpu_has_bf16() -> bool:
    """Whether bf16 products run in hardware; emulated they are slower than float32."""
    ask = getattr(torch.cpu, "get_capabilities", None)
    known = ask() if ask is not None else {}
    return any(known.get(name) for name in ("avx512_bf16", "amx_bf16", "sve_bf16"))
