"""Facts that TracIn needs of a model, ConvE or PyKEEN's: entities, relations, dtype and device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.models.conve import ConvE

__all__ = ["Facts", "architecture_of", "check_ready", "facts_of"]


@dataclass(frozen=True)
class Facts:
    """`relations` as in the files; `inverse`: the model has a second row for each."""

    entities: int
    relations: int
    inverse: bool
    like: torch.Tensor  # has the dtype and device of the scores


def facts_of(model: Any) -> Facts:
    if isinstance(model, ConvE):
        c = model.config
        return Facts(c.num_entities, c.num_relations, c.inverse, model.entities)
    if not hasattr(model, "entity_representations") or not hasattr(model, "relation_representations"):
        raise BadInput(
            f"TracIn cannot score with a {type(model).__name__}.",
            hint="give a kgops ConvE, or a PyKEEN model that learns entity and relation vectors.",
        )
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    if like is None:
        raise BadInput(f"{type(model).__name__} has no parameters, so there are no gradients.")
    inverse = bool(model.use_inverse_triples)
    return Facts(int(model.num_entities), int(model.num_real_relations), inverse, like.detach())


def architecture_of(model: Any) -> object:
    """Model sizes: equal for all checkpoints of one training."""
    if isinstance(model, ConvE):
        return model.config.to_dict()
    sizes = tuple((name, tuple(p.shape)) for name, p in model.named_parameters())
    return type(model).__name__, bool(model.use_inverse_triples), sizes


def check_ready(model: torch.nn.Module) -> None:
    """Refuses weights that are not finite."""
    if model.training:
        raise ValueError("TracIn needs the model in evaluation mode")
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise BadInput(
                f"the checkpoint's '{name}' holds values that are not finite.",
                hint="the training diverged; use an earlier checkpoint.",
            )
