"""Random projection of the two wide factors, feature maps and gradients at the scores.

An inner product of outer products is a product of inner products. Only the wide ones are estimated, each without bias
and with an independent projection, so that their product is unbiased too. Short factors stay exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Sketch"]


@dataclass(frozen=True)
class Sketch:
    """`maps` (features, dim) and `scores` (entities, dim): Gaussian, determined by the seed on every device."""

    maps: torch.Tensor
    scores: torch.Tensor

    @classmethod
    def draw(cls, features: int, entities: int, dim: int, seed: int, like: torch.Tensor) -> Sketch:
        draw = torch.Generator().manual_seed(seed)  # on the CPU: a GPU would draw other numbers

        def matrix(rows: int) -> torch.Tensor:
            drawn = torch.randn(rows, dim, generator=draw, dtype=torch.float32).div_(dim**0.5)
            return drawn.to(like.device, like.dtype)

        return cls(matrix(features), matrix(entities))
