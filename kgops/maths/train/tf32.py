"""Whether float32 products may be rounded to TF32, a global setting of torch, which only this file changes.

torch has three interfaces to it, and raises where one reads what another has set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_CUDNN: Any = torch.backends.cudnn  # has no types


def allow_tf32(allowed: bool) -> None:
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    _CUDNN.allow_tf32 = allowed


@contextmanager
def without_tf32() -> Iterator[None]:
    """Turns TF32 off, and restores what was set."""
    before = torch.get_float32_matmul_precision(), _CUDNN.allow_tf32
    allow_tf32(False)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        _CUDNN.allow_tf32 = before[1]
