"""Gives what the C library's heap holds in pieces back to the system.

oneDNN makes kernels for each new shape, and every block of training triples has other shapes: between them glibc keeps
freed tensors, more with each block.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def trim_heap() -> None:
    """Nothing with other C libraries."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim
