"""Curvature of the training loss, layer by layer: it corrects gradients for directions that every query moves in.

The curvature is the Fisher matrix of the training queries, with labels drawn from the model's own answers. For the
projection it is Kronecker-factored (K-FAC: layer inputs times gradients at its outputs). So it is for the entity matrix
as output layer, with each row's own weight. For each embedding row it is a block. For the few other parameters it is
the full matrix of their layer. Each is damped by a share of its mean. Only the gradients of the test triples are
corrected. A gradient that is a pair of vectors stays one, so scores cost as much as TracIn's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import torch

from kgops.maths.models.products import addmm, mm
from kgops.maths.tracin.encoder import Encoder
from kgops.maths.tracin.factors import Factors
from kgops.maths.train.batches import inverse_triples, query_rows
from kgops.maths.train.evaluate import split
from kgops.workloads.tracin.options import (
    TRACIN_FISHER_BLOCK,
    TRACIN_FISHER_OF_RELATION,
    TRACIN_FISHER_QUERIES,
)

DAMPING = 0.3


@dataclass(frozen=True)
class Queries:
    """Distinct (head, relation row) of a training, how often each is trained on, and the kind of its loss."""

    rows: torch.Tensor
    weights: torch.Tensor
    kind: Literal["bce", "softmax"]

    @classmethod
    def of(cls, rows: torch.Tensor, kind: Literal["bce", "softmax"], one_positive: bool) -> Queries:
        """`rows`: all that is trained on, inverses included."""
        pairs, counts = torch.unique(rows[:, :2], dim=0, return_counts=True)
        return cls(pairs, counts if one_positive else torch.ones_like(counts), kind)

    def sample(self, at: torch.Tensor, most: int, draw: torch.Generator) -> Queries:
        """At most so many of those `at`, which stand for all of them."""
        chosen = at[torch.randperm(len(at), generator=draw)[:most].to(at.device)]
        share = len(at) / max(len(chosen), 1)
        return Queries(self.rows[chosen], self.weights[chosen] * share, self.kind)


def drawn_labels(probabilities: torch.Tensor, kind: str, draw: torch.Generator) -> torch.Tensor:
    """Labels drawn from the model's probabilities (queries, entities); on the CPU: a GPU would draw other numbers."""
    if kind == "bce":
        drawn = torch.rand(probabilities.shape, generator=draw).to(probabilities.device)
        return (drawn < probabilities).to(probabilities)
    chosen = torch.multinomial(probabilities.cpu().double(), 1, generator=draw).to(probabilities.device)
    return torch.zeros_like(probabilities).scatter_(1, chosen, 1)


@dataclass(frozen=True)
class _Sampled:
    """Activations and gradients of sampled queries, times the root of their weights; first dimension: queries."""

    weights: torch.Tensor
    x: torch.Tensor
    maps: torch.Tensor
    u: torch.Tensor
    norm: torch.Tensor | None
    conv: torch.Tensor | None
    heads: torch.Tensor | None
    relations: torch.Tensor | None
    at_scores: torch.Tensor  # of entities, summed over the queries

    @classmethod
    def joined(cls, blocks: Sequence[_Sampled]) -> _Sampled:
        made: dict[str, Any] = {"at_scores": torch.stack([block.at_scores for block in blocks]).sum(0)}
        for name in {field.name for field in fields(cls)} - made.keys():
            parts = [getattr(block, name) for block in blocks]
            made[name] = None if parts[0] is None else torch.cat(parts)
        return cls(**made)


@dataclass(frozen=True, eq=False)
class Training:
    """A model's training triples, and how its loss uses them.

    `one_positive`: each triple is a sample (1vsAll); otherwise the tails of a query share one (KvsAll).
    """

    triples: torch.Tensor
    kind: Literal["bce", "softmax"]
    one_positive: bool

    def queries(self, inverse: bool) -> Queries:
        rows = query_rows(self.triples, inverse)
        if inverse:
            rows = torch.cat([rows, inverse_triples(self.triples)])
        return Queries.of(rows, self.kind, self.one_positive)


def training_of(triples: torch.Tensor, loss: Mapping[str, Any] | None) -> Training:
    """By the loss that a checkpoint records; without a record as PyKEEN trains ConvE."""
    sampling, _, kind = str((loss or {}).get("name") or "kvsall-bce").partition("-")
    return Training(triples, "bce" if kind == "bce" else "softmax", sampling == "1vsall")


class Curvature:
    """`names` of the encoder choose the parameters, as in its gradients."""

    def __init__(self, encoder: Encoder, queries: Queries, *, seed: int = 0) -> None:
        self.encoder, self.queries = encoder, queries
        self._seed = seed
        everything = torch.arange(len(queries.rows), device=queries.rows.device)
        self._all = self._sampled(everything, TRACIN_FISHER_QUERIES, seed)
        weights = queries.weights.to(self._all.x)
        self._per_head = weights.new_zeros(len(encoder.entities)).index_add_(0, queries.rows[:, 0], weights)
        self._total = self._all.weights.sum()
        self._x = mm(self._all.x.t(), self._all.x) / self._total
        heads = self._all.heads
        self._heads = None if heads is None else mm(heads.t(), heads) / self._total
        self._relations: dict[int, torch.Tensor] = {}

    @torch.no_grad()
    def applied(self, test: Factors) -> Factors:
        """Factors of inverse curvature times gradient, for products with others. `test` was made with `keep` under a
        loss that shares nothing."""
        assert test.shared is None
        group, encoded, every = test.group, test.encoded, self._all
        tails, heads, relations = test.tails, test.heads[group], test.relations[group]
        x = self._by_row(tails, encoded.x[group], self._entity)
        maps, one = self._inputs(encoded.maps[group])
        at_scores = every.at_scores[tails] + DAMPING * every.at_scores.mean()
        return replace(
            test,
            encoded=replace(encoded, x=x, maps=maps),
            heads=heads,
            relations=relations,
            group=torch.arange(len(group), device=group.device),
            one_to_one=True,
            u=self._outputs.times(test.u),
            norm=None if test.norm is None else self._norm.times(test.norm),
            conv=None if test.conv is None else self._conv.times(test.conv),
            heads_in=None if test.heads_in is None else self._by_row(heads, test.heads_in, self._entity),
            relations_in=None
            if test.relations_in is None
            else self._by_row(relations, test.relations_in, self._relation),
            x_one=at_scores.reciprocal(),
            maps_one=one,
        )

    def _inputs(self, maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The projection's inputs, and the constant that its bias is multiplied with."""
        corrected = self._projected.times(torch.cat([maps, maps.new_ones(len(maps), 1)], dim=1))
        return corrected[:, :-1], corrected[:, -1]

    @cached_property
    def _projected(self) -> Damped:
        root = self._all.weights.sqrt()[:, None]
        return Damped(torch.cat([self._all.maps, root], dim=1) / self._total.sqrt(), DAMPING**0.5)

    @cached_property
    def _outputs(self) -> Damped:
        return Damped(self._all.u, DAMPING**0.5)

    @cached_property
    def _norm(self) -> Damped:
        assert self._all.norm is not None
        return Damped(self._all.norm, DAMPING)

    @cached_property
    def _conv(self) -> Damped:
        assert self._all.conv is not None
        return Damped(self._all.conv, DAMPING)

    def _entity(self, entity: int) -> torch.Tensor:
        """Block of a row that is the head of its queries, and an output of all."""
        block = self._all.at_scores[entity] * self._x
        return block if self._heads is None else block + self._per_head[entity] * self._heads

    def _relation(self, relation: int) -> torch.Tensor:
        if relation not in self._relations:
            at = (self.queries.rows[:, 1] == relation).nonzero()[:, 0]
            # A seed for each: the scores of a test triple do not depend on the other tests.
            seed = self._seed + 1 + relation
            ours = self._sampled(at, TRACIN_FISHER_OF_RELATION, seed).relations if len(at) else None
            self._relations[relation] = torch.zeros_like(self._x) if ours is None else mm(ours.t(), ours)
        return self._relations[relation]

    def _by_row(
        self, ids: torch.Tensor, vectors: torch.Tensor, block_of: Callable[[int], torch.Tensor]
    ) -> torch.Tensor:
        out = torch.empty_like(vectors)
        for row in sorted(set(ids.tolist())):
            same, block = ids == row, block_of(row)
            hold = DAMPING * block.diagonal().mean()
            # A row that no query reads is in no gradient: nothing to correct.
            damped = block + torch.eye(len(block), dtype=block.dtype, device=block.device) * (hold or 1)
            out[same] = torch.linalg.solve(damped, vectors[same].t()).t()
        return out

    @torch.no_grad()
    def _sampled(self, at: torch.Tensor, most: int, seed: int) -> _Sampled:
        draw = torch.Generator().manual_seed(seed)
        queries = self.queries.sample(at, most, draw)
        rows, weights = (split(part, TRACIN_FISHER_BLOCK) for part in (queries.rows, queries.weights))
        blocks = zip(rows, weights, strict=True)
        return _Sampled.joined([self._block(*block, draw) for block in blocks])

    def _block(self, rows: torch.Tensor, weights: torch.Tensor, draw: torch.Generator) -> _Sampled:
        encoder, kind, entities = self.encoder, self.queries.kind, self.encoder.entities
        weights = weights.to(entities)
        encoded = encoder.encode(rows[:, 0], rows[:, 1], keep=True)
        scores = encoded.x.new_empty(len(rows), len(entities))
        addmm(encoder.biases, encoded.x, entities.t(), out=scores)
        p = scores.sigmoid() if kind == "bce" else scores.softmax(dim=1)
        root = weights.sqrt()[:, None]
        d_x = root * mm(p - drawn_labels(p, kind, draw), entities)
        group = torch.arange(len(rows), device=rows.device)
        u, norm = encoder.output_gradients(encoded, group, d_x)
        pulled = encoder.pull(encoded, group, u)
        inputs = root * encoded.x, root * encoded.maps
        at_scores = weights @ (p * (1 - p))
        return _Sampled(weights, *inputs, u, norm, pulled.conv, pulled.heads, pulled.relations, at_scores)


class Damped:
    """The inverse of samplesᵀ · samples, damped by a share of its mean diagonal, decomposed once.

    Of the two forms of the inverse the smaller is solved: few samples of a wide layer need no matrix of its width.
    """

    def __init__(self, samples: torch.Tensor, damping: float) -> None:
        many, width = samples.shape
        self._samples = samples
        self._hold = damping * float(samples.square().sum()) / width or 1.0
        self._wide = many < width
        gram = mm(samples, samples.t()) if self._wide else mm(samples.t(), samples)
        gram.diagonal().add_(self._hold)
        self._factor = torch.linalg.cholesky(gram)

    def times(self, vectors: torch.Tensor) -> torch.Tensor:
        """Rows of `vectors` times the inverse."""
        right = mm(self._samples, vectors.t()) if self._wide else vectors.t()
        inside = torch.cholesky_solve(right, self._factor).t()
        return (vectors - mm(inside, self._samples)) / self._hold if self._wide else inside
