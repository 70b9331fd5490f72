"""Which parameters of a ConvE take part in TracIn, by name: as `kgops.tracin.layers` chooses them, without torch."""

from __future__ import annotations

from collections.abc import Sequence

from kgops.jobs.conve_config import ConvEConfig

__all__ = ["CONVOLUTION", "parameters_of"]

# From input to output; what has a weight and a bias of its own is a layer.
_VECTORS = ("entities", "biases", "relations")
_ORDER = (*_VECTORS, "input_norm", "conv", "feature_norm", "project", "output_norm")

CONVOLUTION = frozenset(
    f"{layer}.{kind}" for layer in ("conv", "feature_norm", "input_norm") for kind in ("weight", "bias")
)


def parameters_of(c: ConvEConfig, wanted: Sequence[str] | None, last_layers: int) -> frozenset[str]:
    """Those `wanted` by name or layer, else those of the last layers; 0 of them: all."""
    layers = [layer for layer in _ORDER if c.batch_norm or not layer.endswith("_norm")]
    names = {layer: _names(layer) for layer in layers}
    if wanted:
        every = [name for layer in layers for name in names[layer]]
        return frozenset(n for n in every if any(n == want or n.startswith(f"{want}.") for want in wanted))
    return frozenset(name for layer in layers[-last_layers:] for name in names[layer])


def _names(layer: str) -> tuple[str, ...]:
    return (layer,) if layer in _VECTORS else (f"{layer}.weight", f"{layer}.bias")
