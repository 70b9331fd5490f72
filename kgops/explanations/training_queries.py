"""The queries of a training, the facts of one head among them, and a sample of all for what no fact is about."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kgops.explanations.head_encoder import HeadEncoder
from kgops.explanations.targets import Targets
from kgops.models.conve import ConvE
from kgops.training.batches import inverse_triples, query_rows
from kgops.training.evaluate import split

__all__ = ["Background", "Facts", "TrainingQueries", "encoded", "normalizers"]

_ENCODED_AT_ONCE = 256
_SAMPLED = 4096


@dataclass(frozen=True)
class Facts:
    """The training triples that mention a head, and what each adds to the training.

    A fact is a true tail of some of the head's own queries (`own_*`: fact, relation row, tail), and makes the head a
    true tail of queries of other entities (`column_*`: fact, head and relation row of the query, its true tails).
    """

    head: int
    triples: torch.Tensor
    own_facts: torch.Tensor
    own_relations: torch.Tensor
    own_tails: torch.Tensor
    column_facts: torch.Tensor
    column_queries: torch.Tensor
    column_counts: torch.Tensor

    def __len__(self) -> int:
        return len(self.triples)


class TrainingQueries:
    """Distinct (head, relation row) of a training and how many true tails each has."""

    def __init__(self, train: torch.Tensor, *, relation_rows: int, inverse: bool) -> None:
        self.train, self.inverse, self.relation_rows = train, inverse, relation_rows
        rows = query_rows(train, inverse)
        if inverse:
            rows = torch.cat([rows, inverse_triples(train)])
        keys = rows[:, 0] * relation_rows + rows[:, 1]
        self.keys, self.counts = torch.unique(keys, return_counts=True)

    def __len__(self) -> int:
        return len(self.keys)

    def pairs(self, at: torch.Tensor) -> torch.Tensor:
        """Head and relation row of queries: (n, 2)."""
        return torch.stack([self.keys[at] // self.relation_rows, self.keys[at] % self.relation_rows], dim=1)

    def find(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """Positions of queries that are in the training."""
        return torch.searchsorted(self.keys, heads * self.relation_rows + relations)

    def facts_of(self, head: int) -> Facts:
        mentions = (self.train[:, 0] == head) | (self.train[:, 2] == head)
        triples = self.train[mentions]
        number = torch.arange(len(triples))
        parts = [(number, query_rows(triples, self.inverse))]
        if self.inverse:
            parts.append((number, inverse_triples(triples)))
        facts, rows = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        own = rows[:, 0] == head
        column = ~own & (rows[:, 2] == head)
        at = self.find(rows[column, 0], rows[column, 1])
        return Facts(
            head, triples, facts[own], rows[own, 1], rows[own, 2], facts[column], at, self.counts[at]
        )


@torch.no_grad()
def encoded(encoder: HeadEncoder, model: ConvE, pairs: torch.Tensor) -> torch.Tensor:
    """Vectors of (head, relation row): (n, dim)."""
    device = model.entities.device
    pairs = pairs.to(device)
    found = [
        encoder.at(model.entities[some[:, 0]], model.relations[some[:, 1]]).vectors
        for some in split(pairs, _ENCODED_AT_ONCE)
    ]
    return torch.cat(found) if found else model.entities.new_empty(0, model.config.embedding_dim)


@torch.no_grad()
def normalizers(model: ConvE, vectors: torch.Tensor) -> torch.Tensor:
    """The logarithm of the sum of exp(score) over all entities, in float64, for each vector."""
    found = [
        torch.addmm(model.biases, some, model.entities.t()).logsumexp(dim=1).double()
        for some in split(vectors, _ENCODED_AT_ONCE)
    ]
    return torch.cat(found) if found else vectors.new_empty(0, dtype=torch.float64)


class Background:
    """Queries in which most entities are a false tail: all of a small training, a sample of a large one."""

    def __init__(
        self,
        queries: TrainingQueries,
        encoder: HeadEncoder,
        model: ConvE,
        targets: Targets,
        *,
        sampled: int = _SAMPLED,
        seed: int = 0,
    ) -> None:
        self.at = torch.arange(len(queries))
        if len(queries) > sampled:
            draw = torch.Generator().manual_seed(seed)
            self.at = torch.randperm(len(queries), generator=draw)[:sampled].sort().values
        pairs = queries.pairs(self.at)
        self.total, self.heads = len(queries), pairs[:, 0]
        self.counts = queries.counts[self.at]
        self.vectors = encoded(encoder, model, pairs)
        self.normalizers = normalizers(model, self.vectors) if targets.kind == "softmax" else None

    def weights(self, facts: Facts, own: int) -> torch.Tensor:
        """How many training queries each stands for: none of the head's own, none in which it is a true tail."""
        fitting = (self.heads != facts.head) & ~torch.isin(self.at, facts.column_queries)
        others = self.total - own - len(facts.column_queries)
        return fitting.double() * (others / max(int(fitting.sum()), 1))
