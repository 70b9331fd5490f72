"""A job's ConvE by its numbers, from what a job says or from what a training left beside its models."""

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
    """As the worker builds it."""
    told = {name: settings[name] for name in _MODEL_KEYS & settings.keys() if settings[name] is not None}
    return ConvEConfig(num_entities=counts.entities, num_relations=counts.relations, **told)


def model_of_config(config: Mapping[str, Any]) -> ConvEConfig | None:
    """From the `config.json` that a training leaves beside its models; None where it is of another model."""
    told = config.get("model")
    if not isinstance(told, Mapping) or not {"num_entities", "num_relations"} <= told.keys() <= _MODEL_KEYS:
        return None
    counted = [value for name, value in told.items() if not name.endswith("dropout")]
    if not all(value is None or isinstance(value, int) for value in counted):
        return None
    try:
        return ConvEConfig(**told)
    except (Usage, TypeError, ValueError, ArithmeticError):  # changed since, or of another kgops
        return None
