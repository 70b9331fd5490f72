"""How many bytes each tensor of a ConvE takes."""

from __future__ import annotations

import functools

from kgops.jobs.conve_config import ConvEConfig

__all__ = ["buffer_bytes", "weight_bytes", "weight_sizes"]


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
