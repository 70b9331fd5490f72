"""Models of one vector for each entity and each relation, whose score is linear in each of the three vectors.

A model is a class with two functions: `encode_rows`, the vector that is multiplied with the tails, and `relation_rows`,
the vector that is multiplied with the relations. Training, TracIn and explanations need nothing else of it.
"""

from __future__ import annotations

import torch
from torch import nn

from kgops.maths.models.entity_model import EntityModel
from kgops.workloads.train.models import VectorConfig

_FIRST = 1e-3  # standard deviation of first weights, as the authors of N3 have it


class VectorModel(EntityModel):
    config: VectorConfig

    def __init__(self, config: VectorConfig) -> None:
        super().__init__()
        self.config = config
        self.entities = nn.Parameter(torch.empty(config.num_entities, config.embedding_dim))
        self.relations = nn.Parameter(torch.empty(config.relation_rows, config.embedding_dim))
        self.register_buffer("biases", torch.zeros(config.num_entities), persistent=False)
        if not self.entities.is_meta:
            for table in (self.entities, self.relations):
                nn.init.normal_(table, std=_FIRST)

    def relation_rows(self, head_rows: torch.Tensor, tail_rows: torch.Tensor) -> torch.Tensor:
        """The vectors whose product with a relation is the score of head, relation and tail."""
        raise NotImplementedError

    def sizes(self, rows: torch.Tensor) -> torch.Tensor:
        """The size of each number's dimension, in the shape of `rows`."""
        return rows.abs()

    def interleaved(self, table: torch.Tensor) -> torch.Tensor:
        """With the numbers of a dimension next to each other, as PyKEEN has them."""
        return table.view(len(table), -1, self.config.rank).transpose(1, 2).flatten(1)

    def separated(self, table: torch.Tensor) -> torch.Tensor:
        """The reverse."""
        return table.view(len(table), self.config.rank, -1).transpose(1, 2).flatten(1)


class DistMult(VectorModel):
    """Σ h r t"""

    def encode_rows(self, head_rows: torch.Tensor, relation_rows: torch.Tensor) -> torch.Tensor:
        return head_rows * relation_rows

    def relation_rows(self, head_rows: torch.Tensor, tail_rows: torch.Tensor) -> torch.Tensor:
        return head_rows * tail_rows


class ComplEx(VectorModel):
    """The real part of Σ h r t̄ of complex numbers; a vector has all real parts, then all imaginary ones."""

    def encode_rows(self, head_rows: torch.Tensor, relation_rows: torch.Tensor) -> torch.Tensor:
        return _product(head_rows, relation_rows)

    def relation_rows(self, head_rows: torch.Tensor, tail_rows: torch.Tensor) -> torch.Tensor:
        return _product(_conjugate(head_rows), tail_rows)

    def sizes(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.hypot(*rows.chunk(2, -1)).repeat(1, 2)


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (x, y), (u, v) = a.chunk(2, -1), b.chunk(2, -1)
    return torch.cat([x * u - y * v, x * v + y * u], dim=-1)


def _conjugate(a: torch.Tensor) -> torch.Tensor:
    x, y = a.chunk(2, -1)
    return torch.cat([x, -y], dim=-1)
