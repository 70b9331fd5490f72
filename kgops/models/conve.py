"""ConvE (Dettmers et al. 2018): 2-D convolution over head and relation, then a product with every tail.

Layer for layer the model PyKEEN has, so that weights go both ways (`pykeen_bridge`); its training step
is in `encoder`, which does the same mathematics without the passes over memory.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from kgops.errors import Usage

__all__ = ["ConvE", "ConvEConfig"]


@dataclass(frozen=True)
class ConvEConfig:
    """What fixes a ConvE's shape and dropout. With `inverse`, relation r has rows 2r and 2r + 1.

    Of `input_channels`, `embedding_height` and `embedding_width` any may be None: channels default to
    1 and the image to the one nearest to a square. `relation_dropout` is LibKGE's and unknown to PyKEEN.
    """

    num_entities: int
    num_relations: int
    inverse: bool = True
    embedding_dim: int = 200
    input_channels: int | None = None
    embedding_height: int | None = None
    embedding_width: int | None = None
    output_channels: int = 32
    kernel_height: int = 3
    kernel_width: int = 3
    input_dropout: float = 0.2
    feature_map_dropout: float = 0.2
    output_dropout: float = 0.3
    relation_dropout: float = 0.0
    batch_norm: bool = True

    def __post_init__(self) -> None:
        channels, height, width = _image(
            self.embedding_dim, self.input_channels, self.embedding_height, self.embedding_width
        )
        object.__setattr__(self, "input_channels", channels)
        object.__setattr__(self, "embedding_height", height)
        object.__setattr__(self, "embedding_width", width)
        counts = ("num_entities", "num_relations", "output_channels", "kernel_height", "kernel_width")
        for name in counts:
            if getattr(self, name) < 1:
                raise Usage(f"{name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("input_dropout", "feature_map_dropout", "output_dropout", "relation_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise Usage(f"{name} is {getattr(self, name)}; it must be at least 0 and below 1.")
        if self.map_height < 1 or self.map_width < 1:
            raise Usage(
                f"a {self.kernel_height}x{self.kernel_width} kernel does not fit into the image of "
                f"{2 * height}x{width} that head and relation make.",
                hint="take a smaller kernel, or another embedding height and width.",
            )

    @property
    def channels(self) -> int:
        assert self.input_channels is not None
        return self.input_channels

    @property
    def height(self) -> int:
        assert self.embedding_height is not None
        return self.embedding_height

    @property
    def width(self) -> int:
        assert self.embedding_width is not None
        return self.embedding_width

    @property
    def map_height(self) -> int:
        return 2 * self.height - self.kernel_height + 1

    @property
    def map_width(self) -> int:
        return self.width - self.kernel_width + 1

    @property
    def features(self) -> int:
        """Numbers in the flattened feature maps of one (head, relation)."""
        return self.output_channels * self.map_height * self.map_width

    @property
    def relation_rows(self) -> int:
        return self.num_relations * (2 if self.inverse else 1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class ConvE(nn.Module):
    """Scores of every tail for (head, relation) pairs; `relations` are rows, inverses included."""

    def __init__(self, config: ConvEConfig) -> None:
        super().__init__()
        self.config = config
        c = config
        self.entities = nn.Parameter(torch.empty(c.num_entities, c.embedding_dim))
        self.biases = nn.Parameter(torch.zeros(c.num_entities))
        self.relations = nn.Parameter(torch.empty(c.relation_rows, c.embedding_dim))
        self.conv = nn.Conv2d(c.channels, c.output_channels, (c.kernel_height, c.kernel_width))
        self.project = nn.Linear(c.features, c.embedding_dim)
        self.input_norm = nn.BatchNorm2d(c.channels) if c.batch_norm else None
        self.feature_norm = nn.BatchNorm2d(c.output_channels) if c.batch_norm else None
        self.output_norm = nn.BatchNorm1d(c.embedding_dim) if c.batch_norm else None
        nn.init.xavier_normal_(self.entities)
        nn.init.xavier_normal_(self.relations)

    def image(self, head_rows: torch.Tensor, relation_rows: torch.Tensor) -> torch.Tensor:
        """Head above relation, per channel: (batch, channels, 2 · height, width)."""
        shape = (-1, self.config.channels, self.config.height, self.config.width)
        return torch.cat([head_rows.view(shape), relation_rows.view(shape)], dim=2)

    def normed_image(self, head_rows: torch.Tensor, relation_rows: torch.Tensor) -> torch.Tensor:
        if self.config.relation_dropout:
            relation_rows = F.dropout(relation_rows, self.config.relation_dropout, self.training)
        image = self.image(head_rows, relation_rows)
        if self.input_norm is not None:
            image = self.input_norm(image)
        return F.dropout(image, self.config.input_dropout, self.training)

    def finish(self, projected: torch.Tensor) -> torch.Tensor:
        """From the projection to the vector that is multiplied with the tails."""
        x = F.dropout(projected, self.config.output_dropout, self.training)
        # Dropout stands before this norm, as in PyKEEN and unlike in the paper's figure.
        if self.output_norm is not None:
            x = self.output_norm(x)
        return F.relu(x)

    def encode_rows(self, head_rows: torch.Tensor, relation_rows: torch.Tensor) -> torch.Tensor:
        maps = self.conv(self.normed_image(head_rows, relation_rows))
        if self.feature_norm is not None:
            maps = self.feature_norm(maps)
        maps = F.dropout2d(F.relu(maps), self.config.feature_map_dropout, self.training)
        return self.finish(self.project(maps.flatten(1)))

    def encode(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """One vector for each (head, relation): (batch, embedding_dim)."""
        return self.encode_rows(self.entities[heads], self.relations[relations])

    def forward(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """Scores of all entities as tails: (batch, num_entities)."""
        return torch.addmm(self.biases, self.encode(heads, relations), self.entities.t())

    def score_triples(self, triples: torch.Tensor) -> torch.Tensor:
        """One score for each (head, relation row, tail): (batch,)."""
        x = self.encode(triples[:, 0], triples[:, 1])
        return (x * self.entities[triples[:, 2]]).sum(-1) + self.biases[triples[:, 2]]

    @torch.no_grad()
    def folded(self) -> ConvE:
        """A copy for inference whose batch norms sit in its weights: same scores up to rounding."""
        copy = ConvE(replace(self.config, batch_norm=False)).to(self.entities)
        own = self.state_dict()
        copy.load_state_dict({name: own[name] for name in copy.state_dict()})
        copy.eval()
        if self.feature_norm is None or self.output_norm is None or self.input_norm is None:
            return copy
        scale, shift = _affine(self.feature_norm)
        copy.conv.weight.mul_(scale[:, None, None, None])
        if copy.conv.bias is not None:
            copy.conv.bias.mul_(scale).add_(shift)
        scale, shift = _affine(self.output_norm)
        copy.project.weight.mul_(scale[:, None])
        copy.project.bias.mul_(scale).add_(shift)
        # The input norm goes through the convolution: its scale into the kernel, its shift into the
        # bias. That is exact because nothing is padded: every kernel position sees the whole kernel.
        scale, shift = _affine(self.input_norm)
        if copy.conv.bias is not None:
            copy.conv.bias.add_(torch.einsum("oikl,i->o", copy.conv.weight, shift))
        copy.conv.weight.mul_(scale[None, :, None, None])
        return copy


def _affine(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and shift of a batch norm in evaluation."""
    assert norm.running_mean is not None and norm.running_var is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    return scale, norm.bias - norm.running_mean * scale


def _image(dim: int, channels: int | None, height: int | None, width: int | None) -> tuple[int, int, int]:
    if dim < 1:
        raise Usage(f"embedding_dim is {dim}; it must be at least 1.")
    if channels is None:
        channels = dim // (height * width) if height and width else 1
    area = dim // max(channels, 1)
    if height is None and width is None:
        height = max(factor for factor in range(1, math.isqrt(max(area, 1)) + 1) if area % factor == 0)
        width = area // height
    elif height is None:
        height = area // width if width else 0
    elif width is None:
        width = area // height if height else 0
    assert height is not None and width is not None
    if channels < 1 or channels * height * width != dim:
        raise Usage(
            f"embedding_dim {dim} is not channels x height x width = {channels} x {height} x {width}.",
            hint="leave embedding height and width away, or give factors of embedding_dim.",
        )
    return channels, height, width
