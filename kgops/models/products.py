"""Products of float32 matrices by the library of torch that uses this CPU's widest instructions.

On x86, torch multiplies by MKL, which keeps to AVX2 on CPUs that are not Intel's. There, oneDNN, which torch has for
other operators, takes half of MKL's time with AVX-512 (docs/decisions.md). The choice depends on the CPU alone, never
on a timing: the last bits of a sum differ, and a resumed run has to have the weights of an uninterrupted one.

Nothing here has gradients.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import torch

__all__ = ["add_product", "addmm", "mm", "note_of_library", "onednn_is_wider"]

# For less oneDNN takes longer to begin than MKL to end: multiplications, and rows or columns.
_WORTH, _NARROW = 1 << 19, 16
# oneDNN's result is a tensor of its own: floats and rows of a part of it, at most and at least.
_PART, _FEWEST_ROWS = 1 << 17, 32


def mm(
    a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None, scale: float = 1.0
) -> torch.Tensor:
    """scale · a @ b"""
    if not _is_wider_for(a, b):
        if out is None or scale == 1.0:
            product = torch.mm(a, b, out=out)
            return product if scale == 1.0 else product.mul_(scale)
        return torch.addmm(out, a, b, beta=0, alpha=scale, out=out)
    if out is None:
        out = a.new_empty(a.shape[0], b.shape[1])
    for some, rows in _parts(a, b, out):
        torch.mul(_by_onednn(some, b), scale, out=rows)
    return out


def addmm(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """c + a @ b, where `c` is one row or one column."""
    if not _is_wider_for(a, b):
        return torch.addmm(c, a, b, out=out)
    first = 0
    for some, rows in _parts(a, b, out):
        of_rows = c[first : first + len(rows)] if c.dim() == 2 and len(c) > 1 else c
        torch.add(_by_onednn(some, b), of_rows, out=rows)
        first += len(rows)
    return out


def add_product(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """out += a @ b"""
    if not _is_wider_for(a, b):
        return out.addmm_(a, b)
    for some, rows in _parts(a, b, out):
        rows.add_(_by_onednn(some, b))
    return out


@cache
def onednn_is_wider() -> bool:
    """Whether oneDNN has AVX-512 here where MKL has not."""
    by_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    if not by_mkl or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    if (
        not os.environ.get("ONEDNN_MAX_CPU_ISA", "AVX512")
        .upper()
        .startswith(("AVX512", "AVX10", "ALL", "DEFAULT"))
    ):
        return False
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_onednn and _vendor() not in ("GenuineIntel", None)


def note_of_library() -> str | None:
    """What a run on this CPU has to say of its products, where that is not torch's own choice."""
    if not onednn_is_wider():
        return None
    return "matrix products in fp32: by oneDNN with AVX-512, since MKL keeps to AVX2 on this CPU."


def _vendor() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"^vendor_id\s*:\s*(\S+)", text, re.M)
    return found[1] if found else None


def _is_wider_for(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (
        a.dtype == b.dtype == torch.float32
        and a.shape[0] * a.shape[1] * b.shape[1] >= _WORTH
        and min(a.shape[0], b.shape[1]) >= _NARROW
        and a.device.type == "cpu"
        and onednn_is_wider()
    )


def _by_onednn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], "")
    return product


def _parts(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> zip[tuple[torch.Tensor, torch.Tensor]]:
    rows = max(_FEWEST_ROWS, _PART // b.shape[1])
    return zip(torch.split(a, rows), torch.split(out, rows), strict=True)
