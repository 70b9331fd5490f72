"""Scores one block of training triples against one block of test triples at one checkpoint.

A pure function of the three: blocks can be computed anywhere and in any order.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.maths.models.conve import ConvE
from kgops.maths.models.encoder import Buffers
from kgops.maths.models.products import product
from kgops.maths.tracin.curvature import Training
from kgops.maths.tracin.encoder import Encoder
from kgops.maths.tracin.factors import Factors, OtherSide, factors_of
from kgops.maths.tracin.loss import TracinLoss
from kgops.maths.tracin.models import check_ready, facts_of
from kgops.maths.tracin.products import Sketch, pair_scores, self_scores
from kgops.maths.train.batches import inverse_triples, query_rows
from kgops.workloads.tracin.options import TRACIN_BLOCK, TRACIN_CHUNK


@dataclass(frozen=True)
class TracinCheckpoint:
    """A model at one checkpoint, and the learning rate that weights its scores."""

    model: ConvE | Any  # Any: PyKEEN models have no types
    learning_rate: float


@dataclass(frozen=True)
class Settings:
    """Block sizes and number formats. Sizes change scores only by rounding.

    `both_directions` adds each triple's inverse, as training does. `gram_dtype`: format of the factors in the two
    large products with the test triples; `precision`: in all other products. `projection_dim` estimates the wide
    factors by a random projection drawn with `seed`. `tests_at_once` None: as many as fit in `test_mib`. `score`:
    tracin, or one of `scores`; those with curvature need the `training`.
    """

    block: int = TRACIN_BLOCK
    chunk: int = TRACIN_CHUNK
    tests_at_once: int | None = None
    test_mib: int = 512
    both_directions: bool = False
    gram_dtype: torch.dtype | None = None
    precision: torch.dtype | None = None
    projection_dim: int | None = None
    seed: int = 0
    score: str = "tracin"
    training: Training | None = None


@dataclass
class TestFactors:
    """The factors of a block of test triples at one checkpoint, and what the training side needs of them."""

    factors: Factors
    others: OtherSide
    triples: int
    sketched: torch.Tensor | None = None  # shared gradient at the scores, projected: (groups, dim)


class Engine:
    """Scores at one checkpoint, from factors. `names`: parameters whose gradients count, None for all.

    For models that score tails by a dot product with a query vector, which `encoder` computes.
    """

    def __init__(
        self,
        checkpoint: TracinCheckpoint,
        loss: TracinLoss,
        settings: Settings,
        names: Collection[str] | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        check_ready(checkpoint.model)
        facts = facts_of(checkpoint.model)
        self.checkpoint, self.loss, self.settings = checkpoint, loss, settings
        self.buffers = Buffers(facts.like.device)
        self.encoder = encoder or Encoder(
            checkpoint.model, names, buffers=self.buffers, low=settings.precision
        )
        self.total = facts.entities
        self.sketch = None
        if settings.projection_dim is not None:
            features = self.encoder.weight.shape[1] if self.encoder.has_layers else 0
            dim, seed = settings.projection_dim, settings.seed
            self.sketch = Sketch.draw(features, self.total, dim, seed, facts.like)

    @property
    def floats_per_test(self) -> int:
        """Floats kept for each test triple, to choose how many fit in memory."""
        flat = self.encoder.weight.shape[1] if self.encoder.has_layers else 0
        shared = self.total if self.loss.all_scores else 0
        return shared + flat + 8 * self.encoder.entities.shape[1]

    def keep(self, tests: torch.Tensor) -> TestFactors:
        rows = rows_of(self.checkpoint.model, tests, self.settings.both_directions)
        settings = self.settings
        factors = factors_of(self.encoder, self.loss, rows, chunk=settings.chunk, keep=True)
        # The projection's product rounds its factors itself.
        rounded = settings.gram_dtype if self.sketch is None else None
        others = factors.as_other_side(settings.chunk, self.total, rounded)
        if self.sketch is None:
            if settings.gram_dtype is not None:
                factors.maps_low = factors.encoded.maps.to(settings.gram_dtype)
            return TestFactors(factors, others, len(tests))
        self._project_maps(factors)
        others.gram_dtype = settings.gram_dtype
        if others.delta is None:
            return TestFactors(factors, others, len(tests))
        sketched = product(others.delta.t(), self.sketch.scores, settings.gram_dtype)
        return TestFactors(factors, replace(others, delta=self.sketch.scores), len(tests), sketched)

    def make(
        self, train: torch.Tensor, others: OtherSide | None, *, keep: bool = False, rounded: bool = False
    ) -> Factors:
        """The factors of a block of training triples, for `pair` with the tests of `others`."""
        rows = rows_of(self.checkpoint.model, train, self.settings.both_directions)
        block = factors_of(
            self.encoder,
            self.loss,
            rows,
            chunk=self.settings.chunk,
            keep=keep,
            others=others,
            rounded=rounded,
        )
        if self.sketch is not None:
            self._project_maps(block)
        return block

    def pair(self, block: Factors, kept: TestFactors, triples: int) -> torch.Tensor:
        """(tests, trains) times the learning rate; `triples`: number of training triples."""
        pairs = self.products(block, kept)
        if self.settings.both_directions:
            pairs = pairs.view(2, triples, 2, kept.triples).sum((0, 2))
        return pairs.t() * self.checkpoint.learning_rate

    def products(self, block: Factors, kept: TestFactors) -> torch.Tensor:
        """(train rows, test rows): inner products of the gradients."""
        gram = self.settings.gram_dtype
        if kept.sketched is not None and block.shared is not None and block.shared.gram is not None:
            block.shared.gram = product(block.shared.gram, kept.sketched.t(), gram)
        return pair_scores(self.encoder, block, kept.factors, gram)

    def scores(self, kept: TestFactors, train: torch.Tensor) -> torch.Tensor:
        """(tests, trains) times the learning rate."""
        return self.pair(self.make(train, kept.others, rounded=True), kept, len(train))

    def _project_maps(self, factors: Factors) -> None:
        if self.sketch is not None and factors.encoded.maps.shape[1]:
            factors.maps_low = factors.encoded.maps @ self.sketch.maps

    def self_scores(self, triples: torch.Tensor) -> torch.Tensor:
        settings = self.settings
        rows = rows_of(self.checkpoint.model, triples, settings.both_directions)
        block = factors_of(self.encoder, self.loss, rows, chunk=settings.chunk, keep=True, rounded=True)
        own = self_scores(self.encoder, block)
        if settings.both_directions:
            # |∇ + ∇'|² = |∇|² + |∇'|² + 2⟨∇, ∇'⟩, of a triple's two directions.
            others = block.as_other_side(settings.chunk, self.total)
            other = factors_of(
                self.encoder, self.loss, rows, chunk=settings.chunk, others=others, rounded=True
            )
            pairs = pair_scores(self.encoder, other, block)
            n = len(triples)
            own = own[:n] + own[n:] + 2 * pairs[:n, n:].diagonal()
        return own * self.checkpoint.learning_rate


def rows_of(model: ConvE | Any, triples: torch.Tensor, both_directions: bool) -> torch.Tensor:
    """Triples with the model's relation rows; with both directions, followed by all inverses."""
    inverse = facts_of(model).inverse
    rows = query_rows(triples, inverse)
    if not both_directions:
        return rows
    if not inverse:
        raise BadInput(
            "both directions were requested, but this model was trained without inverse relations.",
            hint="leave out --both-directions.",
        )
    return torch.cat([rows, inverse_triples(triples)])
