"""Which way of scoring a model allows: the fewer numbers a gradient is made of, the faster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from kgops.errors import BadInput
from kgops.models.conve import ConvE
from kgops.tracin.blocks import Engine, Point, Settings
from kgops.tracin.loss import TracinLoss
from kgops.tracin.models import check_ready, facts_of
from kgops.training.threads import step_gflop

__all__ = ["AnyEngine", "block_gflop", "engine_for", "engines_for"]


class AnyEngine(Protocol):
    """What one checkpoint answers, however it finds out."""

    @property
    def numbers_each_test(self) -> int:
        """How many numbers are kept of a test triple."""

    def keep(self, tests: torch.Tensor) -> Any:
        """What `scores` has to know of these test triples."""

    def scores(self, kept: Any, train: torch.Tensor) -> torch.Tensor:
        """(tests, trains), weighed with the learning rate."""

    def self_scores(self, triples: torch.Tensor) -> torch.Tensor: ...


def engine_for(
    point: Point, loss: TracinLoss, settings: Settings, names: Collection[str] | None = None
) -> AnyEngine:
    """ConvE by its factors; against all entities products and distances of vectors by theirs; else the
    gradients themselves, of vectors only the rows that a triple reads. All of them are exact."""
    if isinstance(point.model, ConvE):
        return Engine(point, loss, settings, names)
    facts_of(point.model)
    check_ready(point.model)
    parameters = dict(point.model.named_parameters())
    unknown = set(names or ()) - parameters.keys()
    if unknown:
        raise BadInput(
            f"{type(point.model).__name__} has no parameter '{min(unknown)}'.",
            hint="use the names of the model's named_parameters().",
        )
    if names is None:  # what training never moved has no part in how it went
        names = {name for name, p in parameters.items() if p.requires_grad}
    # Here and not above: these know PyKEEN, which takes seconds to load and has no part in ConvE.
    from kgops.tracin.distances import DistanceEngine, is_distance
    from kgops.tracin.embeddings import BilinearEncoder, is_bilinear
    from kgops.tracin.generic import GenericEngine

    if loss.kind != "target" and is_bilinear(point.model):
        return Engine(point, loss, settings, encoder=BilinearEncoder(point.model, names))
    if loss.kind != "target" and is_distance(point.model):
        return DistanceEngine(point, loss, settings, names)
    return GenericEngine(point, loss, settings, names)


def engines_for(
    points: Sequence[Point], loss: TracinLoss, settings: Settings, names: Collection[str] | None = None
) -> list[AnyEngine]:
    """One for each checkpoint. Each has a projection of its own: errors of one shared would add up."""
    return [
        engine_for(point, loss, replace(settings, seed=settings.seed + n), names)
        for n, point in enumerate(points)
    ]


def block_gflop(model: ConvE | Any, loss: TracinLoss, triples: int) -> float:
    """About how many multiplications and additions a block of triples takes, to choose threads by."""
    if isinstance(model, ConvE):
        return step_gflop(model.config, triples) / 2
    entities = facts_of(model).entities
    vectors: int = sum(p.numel() for p in model.entity_representations.parameters())
    others: int = sum(p.numel() for p in model.interaction.parameters())
    numbers = others + (vectors / entities if loss.kind == "target" else vectors)
    return 6 * triples * numbers / 1e9
