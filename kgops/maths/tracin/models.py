"""What TracIn needs of a model, ConvE or PyKEEN's: its facts, and the parameters whose gradients it compares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kgops.errors import BadInput, Usage
from kgops.maths.models.entity_model import EntityModel

# From input to output, as PyKEEN's ConvE lists its modules; `last_layers` counts from the end.
_ORDER = ("entities", "biases", "relations", "input_norm", "conv", "feature_norm", "project", "output_norm")
_PYKEEN_ORDER = ("entity_representations", "relation_representations", "interaction")


@dataclass(frozen=True)
class Facts:
    """`relations` as in the files; `inverse`: the model has a second row for each."""

    entities: int
    relations: int
    inverse: bool
    like: torch.Tensor  # has the dtype and device of the scores


def facts_of(model: Any) -> Facts:
    if isinstance(model, EntityModel):
        c = model.config
        return Facts(c.num_entities, c.num_relations, c.inverse, model.entities)
    if not hasattr(model, "entity_representations") or not hasattr(model, "relation_representations"):
        raise BadInput(
            f"TracIn cannot score with a {type(model).__name__}.",
            hint="give a model of kgops' own engine, or a PyKEEN model that learns entity and relation vectors.",
        )
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    if like is None:
        raise BadInput(f"{type(model).__name__} has no parameters, so there are no gradients.")
    inverse = bool(model.use_inverse_triples)
    return Facts(int(model.num_entities), int(model.num_real_relations), inverse, like.detach())


def architecture_of(model: Any) -> object:
    """Model sizes: equal for all checkpoints of one training."""
    if isinstance(model, EntityModel):
        return model.config.to_dict()
    sizes = tuple((name, tuple(p.shape)) for name, p in model.named_parameters())
    return type(model).__name__, bool(model.use_inverse_triples), sizes


def check_ready(model: nn.Module) -> None:
    """Refuses weights that are not finite."""
    if model.training:
        raise ValueError("TracIn needs the model in evaluation mode")
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not _all_finite(tensor):
            raise BadInput(
                f"the checkpoint's '{name}' holds values that are not finite.",
                hint="the training diverged; use an earlier checkpoint.",
            )


def _all_finite(tensor: torch.Tensor) -> bool:
    """A finite sum has finite terms; to look at each takes tensors as large."""
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


def all_parameters(model: nn.Module) -> frozenset[str]:
    return frozenset(name for name, _ in model.named_parameters())


def last_layers(model: nn.Module, count: int) -> frozenset[str]:
    """The parameters of the last `count` modules that have any, in PyKEEN's order: entity vectors,
    relation vectors, then what combines them."""
    names, layers = all_parameters(model), _layers(model)
    if not 1 <= count <= len(layers):
        raise Usage(
            f"{count} last layers were requested; this model has {len(layers)}: {', '.join(layers)}.",
            hint=f"give a number from 1 to {len(layers)}.",
        )
    return frozenset(name for name in names if _layer(name) in layers[-count:])


def chosen_parameters(model: nn.Module, wanted: Iterable[str]) -> frozenset[str]:
    """Parameters by name or prefix: `project` stands for `project.weight` and `project.bias`,
    `entity_representations` for all entity vectors."""
    names = all_parameters(model)
    chosen: set[str] = set()
    for prefix in wanted:
        matching = {name for name in names if name == prefix or name.startswith(f"{prefix}.")}
        if not matching:
            raise Usage(
                f"the model has no parameter or layer '{prefix}'.",
                hint=f"choose among: {', '.join(sorted(names))}.",
            )
        chosen |= matching
    return frozenset(chosen)


def _layers(model: nn.Module) -> list[str]:
    """Modules that have parameters, from input to output."""
    layers = list(dict.fromkeys(_layer(name) for name, _ in model.named_parameters()))
    order = _ORDER if isinstance(model, EntityModel) else _PYKEEN_ORDER
    positions = {name: position for position, name in enumerate(order)}
    return sorted(layers, key=lambda layer: positions.get(layer.partition(".")[0], len(order)))


def _layer(name: str) -> str:
    """The module that holds the parameter; a parameter of the model itself is its own layer."""
    return name.rpartition(".")[0] or name
