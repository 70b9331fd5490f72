"""ConvE as a torch module."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from kgops.maths.models.entity_model import EntityModel
from kgops.workloads.train.models import ConvEConfig


class ConvE(EntityModel):
    config: ConvEConfig

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
        if (
            not self.entities.is_meta
        ):  # on meta, initialising would only load a compiler, which takes a second
            nn.init.xavier_normal_(self.entities)
            nn.init.xavier_normal_(self.relations)

    @property
    def untrained(self) -> tuple[str, ...]:
        """Names of parameters that keep their first value.

        The scale of an image of one channel is undone by the norm of the feature maps, so the loss hardly depends on
        it. Adam still moves it by a whole step each time. If it crosses zero, all maps change their sign, and the
        training is lost.
        """
        return ("input_norm.weight",) if self.input_norm is not None and self.config.channels == 1 else ()

    def normed_image(self, head_rows: torch.Tensor, relation_rows: torch.Tensor) -> torch.Tensor:
        """Head above relation, per channel: (batch, channels, 2 · height, width)."""
        if self.config.relation_dropout:
            relation_rows = F.dropout(relation_rows, self.config.relation_dropout, self.training)
        shape = (-1, self.config.channels, self.config.height, self.config.width)
        image = torch.cat([head_rows.view(shape), relation_rows.view(shape)], dim=2)
        if self.input_norm is not None:
            image = self.input_norm(image)
        return F.dropout(image, self.config.input_dropout, self.training)

    def finish(self, projected: torch.Tensor) -> torch.Tensor:
        """From the projection to the vector that is multiplied with the tails."""
        x = F.dropout(projected, self.config.output_dropout, self.training)
        # Dropout comes before this norm, as in PyKEEN and unlike in the paper.
        if self.output_norm is not None:
            x = self.output_norm(x)
        return F.relu(x)

    def encode_rows(self, head_rows: torch.Tensor, relation_rows: torch.Tensor) -> torch.Tensor:
        maps = self.conv(self.normed_image(head_rows, relation_rows))
        if self.feature_norm is not None:
            maps = self.feature_norm(maps)
        maps = F.dropout2d(F.relu(maps), self.config.feature_map_dropout, self.training)
        return self.finish(self.project(maps.flatten(1)))
