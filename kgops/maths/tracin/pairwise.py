"""Base class of the TracIn engines for PyKEEN models: directions, learning rate, and chunks that bound memory.

A subclass computes a block's gradients, the products of all pairs, and row-wise products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch.nn import functional as F

from kgops.maths.models.products import mm
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint, rows_of
from kgops.maths.tracin.loss import TracinLoss
from kgops.maths.tracin.models import all_parameters, facts_of

BlockGradients = TypeVar("BlockGradients")


@dataclass
class TestGradients(Generic[BlockGradients]):
    """Gradients of the test triples, in chunks; with both directions, followed by the inverses."""

    chunks: list[BlockGradients]
    triples: int


class PairwiseEngine(ABC, Generic[BlockGradients]):
    """`names`: parameters whose gradients count, None for all. A chunk has `at_once` rows."""

    at_once: int

    def __init__(
        self,
        checkpoint: TracinCheckpoint,
        loss: TracinLoss,
        settings: Settings,
        names: Collection[str] | None = None,
    ) -> None:
        self.checkpoint, self.loss, self.settings = checkpoint, loss, settings
        self.names = all_parameters(checkpoint.model) if names is None else frozenset(names)
        self.total = facts_of(checkpoint.model).entities
        self.at_once = settings.block

    @property
    @abstractmethod
    def floats_per_test(self) -> int: ...

    @abstractmethod
    def gradients(self, rows: torch.Tensor, *, keep: bool = False) -> BlockGradients:
        """Gradients at `rows`, or their factors; `keep` for the test side."""

    @abstractmethod
    def pairs(self, train: BlockGradients, test: BlockGradients) -> torch.Tensor:
        """(train rows, test rows) of ⟨∇, ∇'⟩; `test` was made with `keep`."""

    @abstractmethod
    def rowwise_products(self, some: BlockGradients, others: BlockGradients) -> torch.Tensor:
        """⟨∇, ∇'⟩ of row i of `some` with row i of `others`; both made with `keep`."""

    def keep(self, tests: torch.Tensor) -> TestGradients[BlockGradients]:
        rows = rows_of(self.checkpoint.model, tests, self.settings.both_directions)
        return TestGradients(
            [self.gradients(chunk, keep=True) for chunk in torch.split(rows, self.at_once)], len(tests)
        )

    def scores(self, kept: TestGradients[BlockGradients], train: torch.Tensor) -> torch.Tensor:
        """(tests, trains) times the learning rate."""
        rows = rows_of(self.checkpoint.model, train, self.settings.both_directions)
        blocks = []
        for chunk in torch.split(rows, self.at_once):
            block = self.gradients(chunk)
            blocks.append(torch.cat([self.pairs(block, test) for test in kept.chunks], dim=1))
        pairs = torch.cat(blocks)
        if self.settings.both_directions:
            pairs = pairs.view(2, len(train), 2, kept.triples).sum((0, 2))
        return pairs.t() * self.checkpoint.learning_rate

    def self_scores(self, triples: torch.Tensor) -> torch.Tensor:
        blocks = []
        for chunk in torch.split(triples, self.at_once):
            rows = rows_of(self.checkpoint.model, chunk, self.settings.both_directions)
            sides = [self.gradients(side, keep=True) for side in torch.split(rows, len(chunk))]
            own = sum(self.rowwise_products(side, side) for side in sides)
            if len(sides) == 2:
                own = own + 2 * self.rowwise_products(sides[0], sides[1])
            assert isinstance(own, torch.Tensor)
            blocks.append(own)
        return torch.cat(blocks) * self.checkpoint.learning_rate


def labels_of(loss: TracinLoss, rows: torch.Tensor, total: int, like: torch.Tensor) -> torch.Tensor:
    """(rows, entities): labels of the loss."""
    n, s = len(rows), loss.smoothing
    index = torch.arange(n, device=rows.device)
    which, tails = (index, rows[:, 2]) if loss.known is None else loss.known.positives(rows)
    if loss.kind == "bce":
        negative, positive = loss.targets(total)
        labels = like.new_full((n, total), negative)
        labels[which, tails] = positive
        return labels
    size = like.new_zeros(n).index_add_(0, which, like.new_ones(len(which)))
    labels = like.new_full((n, total), s / total)
    labels[which, tails] += (1 - s) / size[which]
    return labels


def losses_of(loss: TracinLoss, scores: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
    """The loss of each row of scores; under `target` a row has one score."""
    if loss.kind == "target":
        return F.softplus(-scores[:, 0])
    assert labels is not None
    if loss.kind == "bce":
        return F.binary_cross_entropy_with_logits(scores, labels, reduction="none").mean(1)
    return F.cross_entropy(scores, labels, reduction="none")


def add_equal(
    out: torch.Tensor, ids: torch.Tensor, a: torch.Tensor, other_ids: torch.Tensor, b: torch.Tensor
) -> None:
    """Adds to `out` the products of sparse gradients of a matrix, where both sides have an equal row id.

    Ids are (places, samples), vectors (places, samples, width). Few pairs match, so usually these alone are
    multiplied.
    """
    samples, others = out.shape
    a, b = a.flatten(0, 1), b.flatten(0, 1)
    same = ids.flatten()[:, None] == other_ids.flatten()[None, :]
    where = same.nonzero()
    if 8 * len(where) < same.numel():
        i, j = where[:, 0], where[:, 1]
        at = (i % samples) * others + j % others
        out.view(-1).index_add_(0, at, (a[i] * b[j]).sum(1))
        return
    product = mm(a, b.t()).mul_(same)
    out += product.view(-1, samples, len(other_ids), others).sum((0, 2))


def products_where_equal(
    ids: torch.Tensor, a: torch.Tensor, other_ids: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """`add_equal` of sample i with sample i alone: (samples,)."""
    same = ids[:, None] == other_ids[None, :]
    return ((a[:, None] * b[None, :]).sum(3) * same).sum((0, 1))
