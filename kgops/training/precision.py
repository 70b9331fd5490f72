"""Option precision: requested and applied number formats of the large products on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kgops.errors import Usage
from kgops.jobs.on_device import WorkerDevice, training_precision
from kgops.options.shared import PRECISION

__all__ = ["PRECISIONS", "Precision", "place_of", "resolve_precision"]

PRECISIONS = PRECISION.choices
_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """Requested and applied precision; weights, optimizer and sums over entities are float32 under each."""

    requested: str
    applied: str
    reason: str | None

    @property
    def dtype(self) -> torch.dtype:
        return _DTYPES[self.applied]

    @property
    def scaled(self) -> bool:
        """Whether gradients need scaling: only fp16 has too small a range."""
        return self.applied == "fp16"

    def apply(self) -> None:
        """Applies torch's global settings; call once, before the first product."""
        torch.set_float32_matmul_precision("high" if self.applied == "tf32" else "highest")
        backends: Any = torch.backends
        backends.cudnn.allow_tf32 = self.applied == "tf32"
        # Otherwise partial results of a long fp16 sum may be rounded to fp16.
        backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def resolve_precision(requested: str, device: torch.device | str) -> Precision:
    if requested not in PRECISIONS:
        raise Usage(f"precision '{requested}' is unknown.", hint=f"choose one of {', '.join(PRECISIONS)}.")
    return Precision(requested, *training_precision(requested, place_of(device)))


def place_of(device: torch.device | str) -> WorkerDevice:
    """Properties of the device that options depend on."""
    device = torch.device(device)
    if device.type == "cuda":
        return WorkerDevice(torch.cuda.get_device_capability(device))
    return WorkerDevice(has_bf16=cpu_has_bf16())


def cpu_has_bf16() -> bool:
    """Whether bf16 products run in hardware; emulated they are slower than float32."""
    ask = getattr(torch.cpu, "get_capabilities", None)
    known = ask() if ask is not None else {}
    return any(known.get(name) for name in ("avx512_bf16", "amx_bf16", "sve_bf16"))
