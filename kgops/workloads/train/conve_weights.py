"""Weights of the ConvE that a job trains or reads."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from kgops.errors import Usage
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.train.job import ConvEConfig

_MODEL_KEYS = {field.name for field in fields(ConvEConfig)}


def model_of_settings(settings: Mapping[str, Any], counts: Counts) -> ConvEConfig:
    """The model that the worker builds."""
    sizes = {name: settings[name] for name in _MODEL_KEYS & settings.keys() if settings[name] is not None}
    return ConvEConfig(num_entities=counts.entities, num_relations=counts.relations, **sizes)


def model_of_config(config: Mapping[str, Any]) -> ConvEConfig | None:
    """From the `config.json` that a training leaves next to its models; None where it is of another model."""
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


@functools.lru_cache(maxsize=64)
def weight_sizes(c: ConvEConfig) -> tuple[int, ...]:
    """Of every parameter, in float32."""
    kernel = c.output_channels * c.channels * c.kernel_height * c.kernel_width
    numbers = [
        c.num_entities * c.embedding_dim,
        c.num_entities,
        c.relation_rows * c.embedding_dim,
        kernel,
        c.output_channels,
        c.embedding_dim * c.features,
        c.embedding_dim,
    ]
    if c.batch_norm:
        numbers += [width for width in _widths(c) for _ in ("weight", "bias")]
    return tuple(4 * n for n in numbers)


def weight_bytes(c: ConvEConfig) -> int:
    return sum(weight_sizes(c))


def buffer_bytes(c: ConvEConfig) -> int:
    """Of running statistics, which have no gradient: two vectors and a counter for each norm."""
    return sum(8 * width + 8 for width in _widths(c)) if c.batch_norm else 0


def _widths(c: ConvEConfig) -> tuple[int, int, int]:
    return c.channels, c.output_channels, c.embedding_dim


def kernel(model: ConvEConfig) -> int:
    return model.channels * model.kernel_height * model.kernel_width


# Below this a thread waits longer than it computes.
GFLOP_A_THREAD = 0.5


def step_gflop(config: ConvEConfig, batch_size: int) -> float:
    """Gflop of a step's products: once forward, twice backward."""
    kernel = config.channels * config.kernel_height * config.kernel_width
    a_query = config.features * (kernel + config.embedding_dim) + config.num_entities * config.embedding_dim
    return 6 * batch_size * a_query / 1e9


def threads_for(gflop: float, cores: int) -> int:
    return max(1, min(cores, int(gflop / GFLOP_A_THREAD)))
