"""Operations of a training step over the whole batch: batch norm, dropout, sums.

In data-parallel training, where each rank has some rows of a batch, `training.data_parallel` overrides them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["SINGLE_PROCESS", "WholeBatch"]


class WholeBatch:
    """One process holds all rows of the batch."""

    def count(self, local: int) -> int:
        """Rows of the whole batch; this rank has `local` of them."""
        return local

    def total(self, local: torch.Tensor) -> torch.Tensor:
        """Sum over all ranks; may be written into `local`."""
        return local

    def largest(self, local: torch.Tensor) -> torch.Tensor:
        return local

    def draw_rows(self, draw: Callable[[int], torch.Tensor], local: int) -> torch.Tensor:
        """Draws for the whole batch and returns the `local` rows of this rank."""
        return draw(local)

    def dropout(self, x: torch.Tensor, p: float, training: bool) -> torch.Tensor:
        return F.dropout(x, p, training)

    def norm(self, module: nn.BatchNorm1d | nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = module(x)
        return normed


SINGLE_PROCESS = WholeBatch()
