"""What all models of kgops' own engine are: entities scored as tails by their product with a query vector."""

from __future__ import annotations

import torch
from torch import nn

from kgops.workloads.train.models import ModelConfig


class EntityModel(nn.Module):
    """Scores of every tail for (head, relation) pairs; `relations` are rows, inverses included."""

    config: ModelConfig
    entities: nn.Parameter
    relations: nn.Parameter
    biases: torch.Tensor  # of the entities

    @property
    def untrained(self) -> tuple[str, ...]:
        """Names of parameters that keep their first value."""
        return ()

    def encode_rows(self, head_rows: torch.Tensor, relation_rows: torch.Tensor) -> torch.Tensor:
        """The query vectors of these vectors of heads and relations."""
        raise NotImplementedError

    def encode(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """One vector for each (head, relation): (batch, embedding_dim)."""
        return self.encode_rows(self.entities[heads], self.relations[relations])

    def forward(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """Scores of all entities as tails: (batch, num_entities)."""
        return torch.addmm(self.biases, self.encode(heads, relations), self.entities.t())
