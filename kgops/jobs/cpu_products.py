"""Which library of torch multiplies float32 matrices faster on this CPU, and what that takes; without torch.

On x86, torch multiplies by MKL, which keeps to AVX2 on CPUs that are not Intel's. There, oneDNN, which torch has for
other operators, takes half of MKL's time with AVX-512 (docs/decisions/). The choice depends on the CPU alone, never
on a timing: the last bits of a sum differ, and a resumed run has to have the weights of an uninterrupted one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

# For less oneDNN takes longer to begin than MKL to end: multiplications, and rows or columns.
_WORTH, _NARROW = 1 << 19, 16
_ROUNDED = 32  # rows: of 16 a scan is as fast and keeps 30 MiB more, of 64 it takes a twentieth longer
# oneDNN's result is a tensor of its own, and it copies a first factor that is transposed: floats of a part of either,
# at most, and its rows or inner places, at least.
_PART, _FEWEST = 1 << 17, 32
_WIDE_LIMITS = ("all", "default", "avx512", "avx10")
_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}


@cache
def onednn_is_wider() -> bool:
    """Whether oneDNN has AVX-512 here where MKL has not."""
    try:
        described = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return False
    return is_wider_on(described, os.environ)


def is_wider_on(cpuinfo: str, environment: Mapping[str, str]) -> bool:
    """Who limits the instructions of torch or oneDNN means these products, too."""
    if environment.get("ATEN_CPU_CAPABILITY", "avx512").lower() != "avx512":
        return False
    if not environment.get("ONEDNN_MAX_CPU_ISA", "all").lower().startswith(_WIDE_LIMITS):
        return False
    vendor, flags = (re.search(rf"^{name}\s*:\s*(.*)$", cpuinfo, re.M) for name in ("vendor_id", "flags"))
    is_other = vendor is not None and vendor[1] != "GenuineIntel"
    return is_other and flags is not None and set(flags[1].split()) >= _AVX512


def uses_onednn(rows: int, inner: int, columns: int) -> bool:
    """Of a product of float32 matrices on a CPU."""
    return _is_worth(rows, inner, columns) and onednn_is_wider()


def _is_worth(rows: int, inner: int, columns: int) -> bool:
    return rows * inner * columns >= _WORTH and rows >= _NARROW and columns >= _NARROW


def rounded_rows(rows: int) -> int:
    """Rows of a first factor, with those to be added so that few sizes come again: oneDNN makes a kernel for each size,
    which takes as long as a product and stays in memory."""
    return -(-rows // _ROUNDED) * _ROUNDED if rows >= _ROUNDED and onednn_is_wider() else rows


def rows_at_once(columns: int) -> int:
    """Of the result."""
    return max(_FEWEST, _PART // columns)


def inner_at_once(rows: int) -> int:
    """Where the first factor is transposed."""
    return max(_FEWEST, _PART // rows)
