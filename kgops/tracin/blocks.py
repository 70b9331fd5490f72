"""One block of training triples against one block of test triples, at one checkpoint.

A pure function of these three, so that blocks can be computed anywhere and in any order.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.models.conve import ConvE
from kgops.models.encoder import Buffers
from kgops.tracin.encoder import Encoder
from kgops.tracin.factors import Factors, Others, factors_of
from kgops.tracin.loss import TracinLoss
from kgops.tracin.models import check_ready, facts_of
from kgops.tracin.products import pair_scores, self_scores
from kgops.training.batches import inverse_triples, query_rows

__all__ = ["Engine", "Kept", "Point", "Settings", "rows_of"]


@dataclass(frozen=True)
class Point:
    """A checkpoint: its model and the learning rate its scores are weighed with."""

    model: ConvE | Any  # of PyKEEN's, which has no types
    learning_rate: float


@dataclass(frozen=True)
class Settings:
    """How the work is cut; none of it changes scores by more than rounding but `both_directions`, which
    adds each triple's inverse, as training does, and two formats that factors of products are rounded to:
    `gram_dtype` of the two large ones with the test triples, `precision` of all others.
    `tests_at_once` None: as many as `test_mib` holds the factors of."""

    block: int = 256
    chunk: int = 2048
    tests_at_once: int | None = None
    test_mib: int = 512
    both_directions: bool = False
    gram_dtype: torch.dtype | None = None
    precision: torch.dtype | None = None


@dataclass
class Kept:
    """The factors of a block of test triples at one checkpoint, and what the other side has to know of them."""

    factors: Factors
    others: Others
    triples: int


class Engine:
    """What one checkpoint answers. `names` are the parameters that take part, None for all.

    Works for whatever scores tails by a product with a vector: `encoder` tells how that vector is made.
    """

    def __init__(
        self,
        point: Point,
        loss: TracinLoss,
        settings: Settings,
        names: Collection[str] | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        check_ready(point.model)
        facts = facts_of(point.model)
        self.point, self.loss, self.settings = point, loss, settings
        self.buffers = Buffers(facts.like.device)
        self.encoder = encoder or Encoder(point.model, names, buffers=self.buffers, low=settings.precision)
        self.total = facts.entities

    @property
    def numbers_each_test(self) -> int:
        """What is kept of a test triple, so that as many are kept as memory holds."""
        flat = self.encoder.weight.shape[1] if self.encoder.has_layers else 0
        return self.total + flat + 8 * self.encoder.entities.shape[1]

    def keep(self, tests: torch.Tensor) -> Kept:
        rows = rows_of(self.point.model, tests, self.settings.both_directions)
        settings = self.settings
        factors = factors_of(self.encoder, self.loss, rows, chunk=settings.chunk, keep=True)
        if settings.gram_dtype is not None:
            factors.maps_low = factors.encoded.maps.to(settings.gram_dtype)
        return Kept(factors, factors.asks(settings.chunk, self.total, settings.gram_dtype), len(tests))

    def scores(self, kept: Kept, train: torch.Tensor) -> torch.Tensor:
        """(tests, trains), weighed with the learning rate."""
        settings = self.settings
        rows = rows_of(self.point.model, train, settings.both_directions)
        made = factors_of(self.encoder, self.loss, rows, chunk=settings.chunk, others=kept.others)
        pairs = pair_scores(self.encoder, made, kept.factors, settings.gram_dtype)
        if settings.both_directions:
            pairs = pairs.view(2, len(train), 2, kept.triples).sum((0, 2))
        return pairs.t() * self.point.learning_rate

    def self_scores(self, triples: torch.Tensor) -> torch.Tensor:
        settings = self.settings
        rows = rows_of(self.point.model, triples, settings.both_directions)
        block = factors_of(self.encoder, self.loss, rows, chunk=settings.chunk, keep=True)
        own = self_scores(self.encoder, block)
        if settings.both_directions:
            # |∇ + ∇'|² has, beside the squares, twice the product of a triple's two directions.
            others = block.asks(settings.chunk, self.total)
            other = factors_of(self.encoder, self.loss, rows, chunk=settings.chunk, others=others)
            pairs = pair_scores(self.encoder, other, block)
            n = len(triples)
            own = own[:n] + own[n:] + 2 * pairs[:n, n:].diagonal()
        return own * self.point.learning_rate


def rows_of(model: ConvE | Any, triples: torch.Tensor, both_directions: bool) -> torch.Tensor:
    """Triples as the model numbers relations; with both directions the inverses follow them all."""
    inverse = facts_of(model).inverse
    rows = query_rows(triples, inverse)
    if not both_directions:
        return rows
    if not inverse:
        raise BadInput(
            "both directions were asked for, but this model was trained without inverse relations.",
            hint="leave --both-directions away.",
        )
    return torch.cat([rows, inverse_triples(triples)])
