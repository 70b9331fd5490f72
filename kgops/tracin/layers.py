"""Chooses the parameters whose gradients TracIn compares, by name or as the last layers."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from kgops.errors import Usage
from kgops.models.conve import ConvE

__all__ = ["all_parameters", "chosen_parameters", "last_layers"]

# From input to output, as PyKEEN's ConvE lists its modules; `last_layers` counts from the end.
_ORDER = ("entities", "biases", "relations", "input_norm", "conv", "feature_norm", "project", "output_norm")
_PYKEEN_ORDER = ("entity_representations", "relation_representations", "interaction")


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
    order = _ORDER if isinstance(model, ConvE) else _PYKEEN_ORDER
    positions = {name: position for position, name in enumerate(order)}
    return sorted(layers, key=lambda layer: positions.get(layer.partition(".")[0], len(order)))


def _layer(name: str) -> str:
    """The module that holds the parameter; a parameter of the model itself is its own layer."""
    return name.rpartition(".")[0] or name
