"""Which parameters take part, by name or as the last layers."""

from __future__ import annotations

from collections.abc import Iterable

from kgops.errors import Usage
from kgops.models.conve import ConvE

__all__ = ["all_parameters", "chosen_parameters", "last_layers"]

# From input to output, as PyKEEN's ConvE lists its modules: "last" is counted from the end.
_ORDER = ("entities", "biases", "relations", "input_norm", "conv", "feature_norm", "project", "output_norm")


def all_parameters(model: ConvE) -> frozenset[str]:
    return frozenset(name for name, _ in model.named_parameters())


def last_layers(model: ConvE, count: int) -> frozenset[str]:
    """The parameters of the last `count` modules that have any, in PyKEEN's order."""
    names = all_parameters(model)
    layers = [layer for layer in _ORDER if any(_layer(name) == layer for name in names)]
    if not 1 <= count <= len(layers):
        raise Usage(
            f"{count} last layers were asked for; this model has {len(layers)}: {', '.join(layers)}.",
            hint=f"give a number from 1 to {len(layers)}.",
        )
    return frozenset(name for name in names if _layer(name) in layers[-count:])


def chosen_parameters(model: ConvE, wanted: Iterable[str]) -> frozenset[str]:
    """Parameters by full name or by layer: `project` stands for `project.weight` and `project.bias`."""
    names = all_parameters(model)
    chosen: set[str] = set()
    for want in wanted:
        found = {name for name in names if want in (name, _layer(name))}
        if not found:
            raise Usage(
                f"the model has no parameter or layer '{want}'.",
                hint=f"choose among: {', '.join(sorted(names))}.",
            )
        chosen |= found
    return frozenset(chosen)


def _layer(name: str) -> str:
    return name.partition(".")[0]
