"""ConvE configuration from a job's settings or from the `config.json` of a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from kgops.errors import Usage
from kgops.jobs.conve_config import ConvEConfig
from kgops.planning.graph_counts import Counts

__all__ = ["model_of_config", "model_of_settings"]

_MODEL_KEYS = {field.name for field in fields(ConvEConfig)}


def model_of_settings(settings: Mapping[str, Any], counts: Counts) -> ConvEConfig:
    """The model that the worker builds."""
    sizes = {name: settings[name] for name in _MODEL_KEYS & settings.keys() if settings[name] is not None}
    return ConvEConfig(num_entities=counts.entities, num_relations=counts.relations, **sizes)


def model_of_config(config: Mapping[str, Any]) -> ConvEConfig | None:
    """From the `config.json` that a training leaves beside its models; None where it is of another model."""
    sizes = config.get("model")
    if not isinstance(sizes, Mapping) or not {"num_entities", "num_relations"} <= sizes.keys() <= _MODEL_KEYS:
        return None
    counts = [value for name, value in sizes.items() if not name.endswith("dropout")]
    if not all(value is None or isinstance(value, int) for value in counts):
        return None
    try:
        return ConvEConfig(**sizes)
    except (Usage, TypeError, ValueError, ArithmeticError):  # changed since, or of another kgops
        return None
