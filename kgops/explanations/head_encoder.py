"""ConvE's encoder as a function of the head's row: it is linear in pieces, so its slopes are masks and weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from kgops.models.conve import ConvE

__all__ = ["HeadEncoder", "Piece"]


class HeadEncoder:
    """In evaluation, with batch norms folded into the weights."""

    def __init__(self, model: ConvE) -> None:
        folded = model.folded()
        self.config = model.config
        self.kernel, self.kernel_bias = folded.conv.weight.detach(), folded.conv.bias
        self.weight, self.bias = folded.project.weight.detach(), folded.project.bias.detach()

    @torch.no_grad()
    def at(self, heads: torch.Tensor, relations: torch.Tensor) -> Piece:
        """For rows of heads, or one row for all, and rows of relations."""
        c = self.config
        image = torch.cat(
            [self._image(heads).expand(len(relations), -1, -1, -1), self._image(relations)], dim=2
        )
        maps = F.conv2d(image, self.kernel, self.kernel_bias)
        projected = F.linear(F.relu(maps).view(len(relations), c.features), self.weight, self.bias)
        return Piece(self, maps > 0, projected > 0, F.relu(projected))

    def _image(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.view(-1, self.config.channels, self.config.height, self.config.width)


@dataclass(frozen=True)
class Piece:
    """A block of queries and the linear piece that each is on: `vectors` (queries, dim), and which units are on."""

    encoder: HeadEncoder
    maps_on: torch.Tensor
    on: torch.Tensor
    vectors: torch.Tensor

    @torch.no_grad()
    def along(self, direction: torch.Tensor) -> torch.Tensor:
        """The change of each query's vector along one direction of the head's row: (queries, dim)."""
        e = self.encoder
        c = e.config
        image = F.pad(e._image(direction), (0, 0, 0, c.height))
        maps = F.conv2d(image, e.kernel) * self.maps_on
        return F.linear(maps.view(len(self.on), c.features), e.weight) * self.on

    @torch.no_grad()
    def back(self, grads: torch.Tensor) -> torch.Tensor:
        """The gradient of the head's row from those of the vectors, one for each query: (queries, dim)."""
        maps = ((grads * self.on) @ self.encoder.weight).view(self.maps_on.shape) * self.maps_on
        return self._heads(maps.sum(0, keepdim=True))[0]

    @torch.no_grad()
    def slopes(self, query: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The units of a query's vector that are on, and their gradients: (units on, dim)."""
        units = self.on[query].nonzero()[:, 0]
        maps = self.encoder.weight[units].view(len(units), *self.maps_on.shape[1:])
        return units, self._heads(maps * self.maps_on[query])

    def _heads(self, maps: torch.Tensor) -> torch.Tensor:
        image = F.conv_transpose2d(maps, self.encoder.kernel)
        return image[:, :, : self.encoder.config.height].reshape(len(maps), -1)
