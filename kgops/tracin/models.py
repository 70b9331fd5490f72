"""What TracIn has to know of a model, ours or one of PyKEEN's, before it takes a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.models.conve import ConvE

__all__ = ["Facts", "check_ready", "facts_of", "shape_of"]


@dataclass(frozen=True)
class Facts:
    """`relations` as files number them; `inverse` where the model has a second row for each."""

    entities: int
    relations: int
    inverse: bool
    like: torch.Tensor  # of the type, and on the device, that scores have


def facts_of(model: Any) -> Facts:
    if isinstance(model, ConvE):
        c = model.config
        return Facts(c.num_entities, c.num_relations, c.inverse, model.entities)
    if not hasattr(model, "entity_representations") or not hasattr(model, "relation_representations"):
        raise BadInput(
            f"TracIn knows no way to score with a {type(model).__name__}.",
            hint="give kgops' ConvE, or a model of PyKEEN's that learns entity and relation vectors.",
        )
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    if like is None:
        raise BadInput(f"{type(model).__name__} has no parameters, so nothing has a gradient.")
    inverse = bool(model.use_inverse_triples)
    return Facts(int(model.num_entities), int(model.num_real_relations), inverse, like.detach())


def shape_of(model: Any) -> object:
    """Equal for checkpoints of one training."""
    if isinstance(model, ConvE):
        return model.config.to_dict()
    sizes = tuple((name, tuple(p.shape)) for name, p in model.named_parameters())
    return type(model).__name__, bool(model.use_inverse_triples), sizes


def check_ready(model: torch.nn.Module) -> None:
    """Refuses weights that are not finite; every gradient would be as they are."""
    if model.training:
        raise ValueError("TracIn needs the model in evaluation mode")
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise BadInput(
                f"the checkpoint's '{name}' holds values that are not finite.",
                hint="the training diverged; use an earlier checkpoint.",
            )
