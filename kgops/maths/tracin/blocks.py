"""Scores one block of training triples against one block of test triples at one checkpoint: by TracIn, normalised, or
corrected by curvature.

A pure function of the three: blocks can be computed anywhere and in any order.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.maths.models.conve import ConvE
from kgops.maths.models.encoder import Buffers
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.tracin.bilinear import BilinearEncoder
from kgops.maths.tracin.curvature import Curvature, Training
from kgops.maths.tracin.encoder import Encoder
from kgops.maths.tracin.factors import Factors, OtherSide, factors_of
from kgops.maths.tracin.loss import LOGIT, TracinLoss
from kgops.maths.tracin.models import all_parameters, check_ready, facts_of
from kgops.maths.tracin.products import pair_scores, self_scores
from kgops.maths.train.batches import inverse_triples, query_rows
from kgops.maths.train.evaluate import split
from kgops.workloads.tracin.options import TRACIN_BLOCK, TRACIN_CHUNK


@dataclass(frozen=True)
class TracinCheckpoint:
    """A model at one checkpoint, and the learning rate that weights its scores."""

    model: EntityModel | Any  # Any: PyKEEN models have no types
    learning_rate: float


@dataclass(frozen=True)
class Settings:
    """Block sizes and number formats. Sizes change scores only by rounding.

    `both_directions` adds each triple's inverse, as training does. `precision`: format of the factors
    in all products but the two large ones with the test triples. `tests_at_once` None: as many as fit in
    512 MiB. `score`: tracin, or one of `scores`; those with curvature need the `training`.
    """

    block: int = TRACIN_BLOCK
    chunk: int = TRACIN_CHUNK
    tests_at_once: int | None = None
    both_directions: bool = False
    precision: torch.dtype | None = None
    seed: int = 0
    score: str = "tracin"
    training: Training | None = None


@dataclass
class TestFactors:
    """The factors of a block of test triples at one checkpoint, and what the training side needs of them."""

    factors: Factors
    others: OtherSide
    triples: int


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
        self.encoder = encoder or _encoder(checkpoint.model, names, self.buffers, settings.precision)
        self.total = facts.entities

    @property
    def floats_per_test(self) -> int:
        """Floats kept for each test triple, to choose how many fit in memory."""
        flat = self.encoder.weight.shape[1] if self.encoder.has_layers else 0
        shared = self.total if self.loss.all_scores else 0
        return shared + flat + 8 * self.encoder.entities.shape[1]

    def keep(self, tests: torch.Tensor) -> TestFactors:
        rows = rows_of(self.checkpoint.model, tests, self.settings.both_directions)
        chunk = self.settings.chunk
        factors = factors_of(self.encoder, self.loss, rows, chunk=chunk, keep=True)
        return TestFactors(factors, factors.as_other_side(chunk, self.total), len(tests))

    def scores(self, kept: TestFactors, train: torch.Tensor) -> torch.Tensor:
        """(tests, trains) times the learning rate."""
        pairs = self._products(kept, train)
        if self.settings.both_directions:
            pairs = pairs.view(2, len(train), 2, kept.triples).sum((0, 2))
        return pairs.t() * self.checkpoint.learning_rate

    def _products(self, kept: TestFactors, train: torch.Tensor) -> torch.Tensor:
        """(train rows, test rows): inner products of the gradients."""
        settings = self.settings
        rows = rows_of(self.checkpoint.model, train, settings.both_directions)
        block = factors_of(
            self.encoder, self.loss, rows, chunk=settings.chunk, others=kept.others, rounded=True
        )
        return pair_scores(self.encoder, block, kept.factors)

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


def _encoder(
    model: EntityModel, names: Collection[str] | None, buffers: Buffers, low: torch.dtype | None
) -> Encoder:
    if isinstance(model, ConvE):
        return Encoder(model, names, buffers=buffers, low=low)

    def score(h: torch.Tensor, r: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return (model.encode_rows(h, r) * t).sum(-1)

    kept = all_parameters(model) if names is None else frozenset(names)
    return BilinearEncoder(model.entities.detach(), model.relations.detach(), score, kept, low=low)


def rows_of(model: EntityModel | Any, triples: torch.Tensor, both_directions: bool) -> torch.Tensor:
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


class CosineEngine:
    """Scores of another engine, divided by the lengths of both gradients. They are also divided by the number of
    engines in the sum, so that it is from -1 to 1."""

    def __init__(self, inner: Any, engines: int = 1) -> None:
        self.inner, self.engines = inner, engines

    @property
    def floats_per_test(self) -> int:
        floats: int = self.inner.floats_per_test
        return floats

    def keep(self, tests: torch.Tensor) -> Any:
        return self.inner.keep(tests), self._lengths(tests)

    def scores(self, kept: Any, train: torch.Tensor) -> torch.Tensor:
        inner, lengths = kept
        scores: torch.Tensor = self.inner.scores(inner, train)
        return scores.div_(self.engines * lengths[:, None]).div_(self._lengths(train)[None])

    def self_scores(self, triples: torch.Tensor) -> torch.Tensor:
        return torch.full_like(self._lengths(triples), 1 / self.engines)

    def _lengths(self, triples: torch.Tensor) -> torch.Tensor:
        blocks = split(triples, self.inner.settings.block)
        squared = torch.cat([self.inner.self_scores(block) for block in blocks])
        return squared.clamp_min(torch.finfo(squared.dtype).tiny).sqrt()


class FisherEngine(Engine):
    """⟨∇, F⁻¹ ∇'⟩ with the curvature F of the training loss (see `curvature`), damped.

    Compares what a training triple adds to the training with the gradient of the test triple's logit, for its tail.
    Under KvsAll a removed triple becomes a false tail of its query. This moves the logit's label by a fixed amount,
    however well it is learnt. Under 1vsAll each training triple is a sample, and ∇ is the gradient of that sample's
    loss. With `labels`, ∇ is the logit's gradient instead, as under KvsAll. It does not vanish as the triple is learnt.
    """

    def __init__(
        self,
        checkpoint: TracinCheckpoint,
        settings: Settings,
        names: Collection[str] | None = None,
        *,
        labels: bool = False,
    ) -> None:
        if not isinstance(checkpoint.model, EntityModel):
            raise BadInput(
                f"the score {settings.score} is for ConvE, ComplEx and DistMult, "
                f"not for {type(checkpoint.model).__name__}.",
                hint="choose --score tracin or --score cosine.",
            )
        if settings.training is None:
            raise ValueError(f"the score {settings.score} needs the training")
        both = bool(checkpoint.model.config.inverse)
        super().__init__(checkpoint, LOGIT, replace(settings, both_directions=both), names)
        self.training, self.seed = settings.training, settings.seed
        if self.training.one_positive and not labels:
            self.loss = TracinLoss(self.training.kind)

    @property
    def floats_per_test(self) -> int:
        """As of any logit: nothing is kept of tests at the scores of all entities."""
        return super().floats_per_test - (self.total if self.loss.all_scores else 0)

    @cached_property
    def curvature(self) -> Curvature:
        device = self.encoder.entities.device
        queries = self.training.queries(self.checkpoint.model.config.inverse)
        queries = replace(queries, rows=queries.rows.to(device), weights=queries.weights.to(device))
        return Curvature(self.encoder, queries, seed=self.seed)

    def keep(self, tests: torch.Tensor) -> TestFactors:
        return self.keep_rows(rows_of(self.checkpoint.model, tests, both_directions=False))

    def keep_rows(self, rows: torch.Tensor) -> TestFactors:
        """Rows as the model numbers them, of either direction."""
        chunk = self.settings.chunk
        made = factors_of(self.encoder, LOGIT, rows, chunk=chunk, keep=True)
        factors = self.curvature.applied(made)
        return TestFactors(factors, factors.as_other_side(chunk, self.total), len(rows))

    def self_scores(self, triples: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("self-influence is TracIn's")

    def scores(self, kept: TestFactors, train: torch.Tensor) -> torch.Tensor:
        return self._products(kept, train).view(-1, len(train), kept.triples).sum(0).t()
