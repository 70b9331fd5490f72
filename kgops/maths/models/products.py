"""Products of float32 matrices by the library that is faster on this CPU. `kgops.jobs.on_device` chooses it. This
file also sets whether a GPU may round them to TF32, a global setting of torch. Only this file changes it: torch has
three interfaces to it, and raises where one reads a value that another has set.

No product here has gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from kgops.jobs.on_device import inner_at_once, onednn_is_wider, rows_at_once, uses_onednn
from kgops.workloads.train.options import COLUMN_FOLDS


def mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b"""
    return _product(a, b) if _by_onednn(a, b) else torch.mm(a, b)


def mm_into(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
    """out = scale · a @ b"""
    if not _by_onednn(a, b):
        return torch.mm(a, b, out=out) if scale == 1 else torch.addmm(out, a, b, beta=0, alpha=scale, out=out)
    if _is_transposed(a):
        return add_product(out.zero_(), a, b).mul_(scale)
    for rows in slices(len(a), rows_at_once(b.shape[1])):
        torch.mul(_product(a[rows], b), scale, out=out[rows])
    return out


def mm_buffered(a: torch.Tensor, b: torch.Tensor, buffer: Callable[[], torch.Tensor]) -> torch.Tensor:
    """a @ b, written into the buffer if the library supports that."""
    return _product(a, b) if _by_onednn(a, b) else torch.mm(a, b, out=buffer())


def addmm(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """c + a @ b, where `c` is one row or one column."""
    if not _by_onednn(a, b):
        return torch.addmm(c, a, b, out=out)
    is_column = c.dim() == 2 and len(c) > 1
    for rows in slices(len(a), rows_at_once(b.shape[1])):
        torch.add(_product(a[rows], b), c[rows] if is_column else c, out=out[rows])
    return out


def add_product(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """out += a @ b"""
    if not _by_onednn(a, b):
        return out.addmm_(a, b)
    is_split = _is_transposed(a) and b.is_contiguous()  # otherwise a part of b would not be dense
    for rows in slices(len(a), rows_at_once(b.shape[1])):
        some = a[rows]
        at_once = inner_at_once(len(some)) if is_split else a.shape[1]
        for inner in slices(a.shape[1], at_once):
            out[rows].add_(_product(some[:, inner], b[inner]))
    return out


def note_of_library() -> str | None:
    """The note of a run on this CPU about its products, or None if they are torch's own."""
    if not (onednn_is_wider() and _torch_has_both()):
        return None
    return "matrix products in fp32: by oneDNN with AVX-512, since MKL keeps to AVX2 on this CPU."


@cache
def _torch_has_both() -> bool:
    mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return mkl and onednn


def _by_onednn(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (
        a.dtype == b.dtype == torch.float32
        and a.device.type == "cpu"
        and uses_onednn(a.shape[0], a.shape[1], b.shape[1])
        and _is_dense(b)
        and _torch_has_both()
    )


def _is_dense(a: torch.Tensor) -> bool:
    """A second factor that is not takes oneDNN a thousand times as long."""
    return a.is_contiguous() or a.t().is_contiguous()


def _is_transposed(a: torch.Tensor) -> bool:
    return a.stride(0) == 1 and a.stride(1) > 1


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], "")
    return product


def slices(total: int, at_once: int) -> Iterator[slice]:
    return (slice(first, first + at_once) for first in range(0, total, at_once))


_Reduce = Callable[[torch.Tensor, int], torch.Tensor]
_Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def column_sums(plane: torch.Tensor) -> torch.Tensor:
    # Not a product with ones: TF32 would round the plane. A CPU has no partial results, and folding takes it longer.
    return fold_columns(plane, torch.sum, torch.add) if plane.is_cuda else plane.sum(0)


def column_maxima(plane: torch.Tensor) -> torch.Tensor:
    return fold_columns(plane, torch.amax, torch.maximum) if plane.is_cuda else plane.amax(0)


def fold_columns(plane: torch.Tensor, reduce: _Reduce, combine: _Combine) -> torch.Tensor:
    """Reduces the rows: each `COLUMN_FOLDS` of them to one, these to one, and what is left over."""
    height = len(plane) // COLUMN_FOLDS
    if not height:
        return reduce(plane, 0)
    folded = plane[: COLUMN_FOLDS * height].view(COLUMN_FOLDS, height, plane.shape[1])
    rest = plane[COLUMN_FOLDS * height :]
    reduced = reduce(reduce(folded, 0), 0)
    return combine(reduced, reduce(rest, 0)) if len(rest) else reduced


def product(a: torch.Tensor, b: torch.Tensor, low: torch.dtype | None) -> torch.Tensor:
    """a @ b in a's dtype, batched like `torch.matmul`; factors are rounded to `low`, and `b` may be rounded already.

    Sums are float32. On a GPU, the product of two matrices keeps them; otherwise the result is rounded once more.
    """
    if low is None or low == a.dtype:
        return mm(a, b) if a.dim() == b.dim() == 2 else torch.matmul(a, b)
    if a.device.type == "cpu" and low == torch.float16:
        # The CPU sums fp16 in fp16, a GPU in fp32: round only the factors, so that both agree.
        return torch.matmul(a.to(low).to(a.dtype), b.to(low).to(a.dtype))
    if a.is_cuda and a.dim() == b.dim() == 2 and a.dtype == torch.float32:
        return torch.mm(a.to(low), b.to(low), out_dtype=torch.float32)
    return torch.matmul(a.to(low), b.to(low)).to(a.dtype)


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
