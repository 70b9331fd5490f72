"""Sums and maxima of a large plane's columns without partial results as large as the plane.

Where a plane has few columns, torch's reduction shares each among many blocks of threads of a GPU. Their partial
results take up to twice the plane's memory. A plane whose rows are folded has so many columns that nothing is shared.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kgops.workloads.train.options import COLUMN_FOLDS

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
