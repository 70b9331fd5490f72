"""Chooses the TracIn engine for a model: factors, distances, or generic gradients."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from kgops.errors import BadInput
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.models.pykeen_bridge import own_vectors
from kgops.maths.tracin.blocks import CosineEngine, Engine, FisherEngine, Settings, TracinCheckpoint
from kgops.maths.tracin.loss import TracinLoss
from kgops.maths.tracin.models import check_ready, facts_of
from kgops.workloads.train.models import step_gflop


class AnyEngine(Protocol):
    """Scores at one checkpoint."""

    @property
    def floats_per_test(self) -> int:
        """Floats kept for each test triple."""

    def keep(self, tests: torch.Tensor) -> Any:
        """What `scores` needs of these test triples."""

    def scores(self, kept: Any, train: torch.Tensor) -> torch.Tensor:
        """(tests, trains) times the learning rate."""

    def self_scores(self, triples: torch.Tensor) -> torch.Tensor: ...


def engine_for(
    checkpoint: TracinCheckpoint,
    loss: TracinLoss,
    settings: Settings,
    names: Collection[str] | None = None,
    *,
    checkpoints: int = 1,
) -> AnyEngine:
    """The settings' score chooses the engine. TracIn uses factors for ConvE, and for bilinear and distance models
    scored against all entities. Otherwise it uses the gradients, with only the embedding rows that a triple reads. All
    are exact."""
    if settings.score == "cosine":
        inner = engine_for(checkpoint, loss, replace(settings, score="tracin"), names)
        return CosineEngine(inner, checkpoints)
    if settings.score == "fisher":
        if not isinstance(checkpoint.model, EntityModel):
            own = own_vectors(checkpoint.model)
            if own is not None:
                from kgops.maths.tracin.vector_models import own_names

                checkpoint = replace(checkpoint, model=own)
                names = None if names is None else own_names(names)
        return FisherEngine(checkpoint, settings, names)
    if isinstance(checkpoint.model, EntityModel):
        return Engine(checkpoint, loss, settings, names)
    facts_of(checkpoint.model)
    check_ready(checkpoint.model)
    parameters = dict(checkpoint.model.named_parameters())
    unknown = set(names or ()) - parameters.keys()
    if unknown:
        raise BadInput(
            f"{type(checkpoint.model).__name__} has no parameter '{min(unknown)}'.",
            hint="use the names of the model's named_parameters().",
        )
    if names is None:  # parameters that training never changed do not count
        names = {name for name, p in parameters.items() if p.requires_grad}
    # Imported here: they import PyKEEN, which takes seconds and which ConvE does not need.
    from kgops.maths.tracin.generic import GenericEngine
    from kgops.maths.tracin.vector_models import DistanceEngine, bilinear_encoder, is_bilinear, is_distance

    if loss.kind != "target" and is_bilinear(checkpoint.model):
        return Engine(checkpoint, loss, settings, encoder=bilinear_encoder(checkpoint.model, names))
    if loss.kind != "target" and is_distance(checkpoint.model):
        return DistanceEngine(checkpoint, loss, settings, names)
    return GenericEngine(checkpoint, loss, settings, names)


def engines_for(
    checkpoints: Sequence[TracinCheckpoint],
    loss: TracinLoss,
    settings: Settings,
    names: Collection[str] | None = None,
) -> list[AnyEngine]:
    """One for each checkpoint, each with separate draws: the errors of shared ones would add up."""
    return [
        engine_for(
            checkpoint, loss, replace(settings, seed=settings.seed + n), names, checkpoints=len(checkpoints)
        )
        for n, checkpoint in enumerate(checkpoints)
    ]


def block_gflop(model: EntityModel | Any, loss: TracinLoss, triples: int) -> float:
    """Approximate GFLOP of a block of triples, to choose the number of threads."""
    if isinstance(model, EntityModel):
        return step_gflop(model.config, triples) / 2
    entities = facts_of(model).entities
    vectors: int = sum(p.numel() for p in model.entity_representations.parameters())
    others: int = sum(p.numel() for p in model.interaction.parameters())
    numbers = others + (vectors / entities if loss.kind == "target" else vectors)
    return 6 * triples * numbers / 1e9
