"""Scores beside TracIn's, from the same factors: normalised, or corrected by curvature."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import Engine, Settings, TestFactors, TracinCheckpoint, rows_of
from kgops.maths.tracin.curvature import DAMPING, Curvature
from kgops.maths.tracin.factors import Factors, factors_of
from kgops.maths.tracin.loss import LOGIT, TracinLoss
from kgops.maths.train.evaluate import split


class CosineEngine:
    """Scores of another engine, divided by the lengths of both gradients and by the number of engines they are summed
    over, so that the sum is from -1 to 1."""

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


class _LogitEngine(Engine):
    """Compares what a training triple adds to the training with the gradient of the test triple's logit, for its tail.

    Under KvsAll a triple that is removed becomes a false tail of its query, which moves the logit's label by a fixed
    amount however well it is learnt.
    """

    def __init__(
        self,
        checkpoint: TracinCheckpoint,
        settings: Settings,
        names: Collection[str] | None = None,
    ) -> None:
        if not isinstance(checkpoint.model, ConvE):
            raise BadInput(
                f"the score {settings.score} is made for kgops' ConvE, not for {type(checkpoint.model).__name__}.",
                hint="choose --score tracin or --score cosine.",
            )
        if settings.training is None:
            raise ValueError(f"the score {settings.score} needs the training")
        training, both = settings.training, bool(checkpoint.model.config.inverse)
        super().__init__(
            checkpoint,
            LOGIT,
            replace(settings, both_directions=both, projection_dim=None),
            names,
        )
        self.training, self.seed = training, settings.seed

    def _test_rows(self, tests: torch.Tensor) -> torch.Tensor:
        return rows_of(self.checkpoint.model, tests, both_directions=False)

    def self_scores(self, triples: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("self-influence is TracIn's")


class FisherEngine(_LogitEngine):
    """⟨∇, F⁻¹ ∇'⟩ with the curvature F of the training loss (see `curvature`), damped.

    Under 1vsAll a training triple is a sample of its own, and ∇ the gradient of that sample's loss; with `labels`
    that of its logit there, too, which does not vanish as the triple is learnt.
    """

    def __init__(self, *args: Any, damping: float = DAMPING, labels: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.damping = damping
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
        return Curvature(self.encoder, queries, damping=self.damping, seed=self.seed)

    def keep(self, tests: torch.Tensor) -> TestFactors:
        return self.keep_rows(self._test_rows(tests))

    def keep_rows(self, rows: torch.Tensor) -> TestFactors:
        """Rows as the model numbers them, of either direction."""
        chunk, gram = self.settings.chunk, self.settings.gram_dtype
        made = factors_of(self.encoder, LOGIT, rows, chunk=chunk, keep=True)
        factors = self.curvature.applied(made)
        if gram is not None:
            factors.maps_low = factors.encoded.maps.to(gram)
        return TestFactors(factors, factors.as_other_side(chunk, self.total, gram), len(rows))

    def pair(self, block: Factors, kept: TestFactors, triples: int) -> torch.Tensor:
        products = self.products(block, kept)
        return products.view(-1, triples, kept.triples).sum(0).t()
