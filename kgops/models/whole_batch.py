"""What a training step asks of the whole batch it works on, and not of the rows it has before it.

Batch norms look at all rows of a batch, and dropout draws for all of them. Where a batch is shared out to several
processes, `training.parallel` answers in place of this class, which has the whole batch at hand.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["ALL_HERE", "WholeBatch"]


class WholeBatch:
    """All rows are here."""

    def count(self, here: int) -> int:
        """Rows of the whole batch, of which `here` are here."""
        return here

    def total(self, here: torch.Tensor) -> torch.Tensor:
        """The sum over all parts of the batch; may be written into `here`."""
        return here

    def largest(self, here: torch.Tensor) -> torch.Tensor:
        return here

    def drawn(self, draw: Callable[[int], torch.Tensor], here: int) -> torch.Tensor:
        """Of what `draw` gives for so many rows, those that are here."""
        return draw(here)

    def dropout(self, x: torch.Tensor, p: float, training: bool) -> torch.Tensor:
        return F.dropout(x, p, training)

    def norm(self, module: nn.BatchNorm1d | nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = module(x)
        return normed


ALL_HERE = WholeBatch()
