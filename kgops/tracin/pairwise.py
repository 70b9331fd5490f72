"""An engine from three answers: a block's gradients, all their pairs, and pairs one by one.

What all engines but ConvE's share: directions, learning rate, and pieces that bound memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch.nn import functional as F

from kgops.tracin.blocks import Point, Settings, rows_of
from kgops.tracin.layers import all_parameters
from kgops.tracin.loss import TracinLoss
from kgops.tracin.models import facts_of

__all__ = ["KeptBlock", "PairwiseEngine", "add_equal", "labels_of", "losses_of", "products_where_equal"]

Made = TypeVar("Made")


@dataclass
class KeptBlock(Generic[Made]):
    """Test triples' gradients, in pieces; with both directions the inverses follow them all."""

    pieces: list[Made]
    triples: int


class PairwiseEngine(ABC, Generic[Made]):
    """`names` are the parameters that take part, None for all. `at_once` rows make a piece."""

    at_once: int

    def __init__(
        self, point: Point, loss: TracinLoss, settings: Settings, names: Collection[str] | None = None
    ) -> None:
        self.point, self.loss, self.settings = point, loss, settings
        self.names = all_parameters(point.model) if names is None else frozenset(names)
        self.total = facts_of(point.model).entities
        self.at_once = settings.block

    @property
    @abstractmethod
    def numbers_each_test(self) -> int: ...

    @abstractmethod
    def made(self, rows: torch.Tensor, *, keep: bool = False) -> Made:
        """What the gradients at `rows` are made of; `keep` for the side that stays."""

    @abstractmethod
    def pairs(self, train: Made, test: Made) -> torch.Tensor:
        """(train rows, test rows) of ⟨∇, ∇'⟩; `test` was made with `keep`."""

    @abstractmethod
    def one_by_one(self, some: Made, others: Made) -> torch.Tensor:
        """⟨∇, ∇'⟩ of each row with the other's row of the same number; both made with `keep`."""

    def keep(self, tests: torch.Tensor) -> KeptBlock[Made]:
        rows = rows_of(self.point.model, tests, self.settings.both_directions)
        return KeptBlock(
            [self.made(piece, keep=True) for piece in torch.split(rows, self.at_once)], len(tests)
        )

    def scores(self, kept: KeptBlock[Made], train: torch.Tensor) -> torch.Tensor:
        """(tests, trains), weighed with the learning rate."""
        rows = rows_of(self.point.model, train, self.settings.both_directions)
        found = []
        for piece in torch.split(rows, self.at_once):
            made = self.made(piece)
            found.append(torch.cat([self.pairs(made, test) for test in kept.pieces], dim=1))
        pairs = torch.cat(found)
        if self.settings.both_directions:
            pairs = pairs.view(2, len(train), 2, kept.triples).sum((0, 2))
        return pairs.t() * self.point.learning_rate

    def self_scores(self, triples: torch.Tensor) -> torch.Tensor:
        found = []
        for piece in torch.split(triples, self.at_once):
            rows = rows_of(self.point.model, piece, self.settings.both_directions)
            sides = [self.made(side, keep=True) for side in torch.split(rows, len(piece))]
            own = sum(self.one_by_one(side, side) for side in sides)
            if len(sides) == 2:
                own = own + 2 * self.one_by_one(sides[0], sides[1])
            assert isinstance(own, torch.Tensor)
            found.append(own)
        return torch.cat(found) * self.point.learning_rate


def labels_of(loss: TracinLoss, rows: torch.Tensor, total: int, like: torch.Tensor) -> torch.Tensor:
    """(rows, entities): what the loss compares the scores with."""
    n, s = len(rows), loss.smoothing
    index = torch.arange(n, device=rows.device)
    which, tails = (index, rows[:, 2]) if loss.known is None else loss.known.positives(rows)
    if loss.kind == "bce":
        labels = like.new_full((n, total), s / max(total - 1, 1))
        labels[which, tails] = 1 - s
        return labels
    size = like.new_zeros(n).index_add_(0, which, like.new_ones(len(which)))
    labels = like.new_full((n, total), s / total)
    labels[which, tails] += (1 - s) / size[which]
    return labels


def losses_of(loss: TracinLoss, scores: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
    """The loss of each row of scores; of one score a row under `target`."""
    if loss.kind == "target":
        return F.softplus(-scores[:, 0])
    assert labels is not None
    if loss.kind == "bce":
        return F.binary_cross_entropy_with_logits(scores, labels, reduction="none").mean(1)
    return F.cross_entropy(scores, labels, reduction="none")


def add_equal(
    out: torch.Tensor, ids: torch.Tensor, a: torch.Tensor, other_ids: torch.Tensor, b: torch.Tensor
) -> None:
    """Adds to `out` the products of rows of a matrix's gradient, where both sides have the same row.

    Ids and vectors carry, beside the row, a sample: (places, samples) and (places, samples, width). Few
    pairs meet, so mostly these alone are multiplied.
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
    product = (a @ b.t()).mul_(same)
    out += product.view(-1, samples, len(other_ids), others).sum((0, 2))


def products_where_equal(
    ids: torch.Tensor, a: torch.Tensor, other_ids: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """The same of each sample with the other of its number: (samples,)."""
    same = ids[:, None] == other_ids[None, :]
    return ((a[:, None] * b[None, :]).sum(3) * same).sum((0, 1))
