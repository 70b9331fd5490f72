"""Number of CPU threads for a step, chosen by its size, not by timing.

A measured choice would differ between attempts, and the number of threads changes the last bits of every sum:
a resumed run would no longer have the weights of an uninterrupted one.
"""

from __future__ import annotations

from kgops.workloads.train.job import ConvEConfig

# Below this a thread waits longer than it computes.
GFLOP_A_THREAD = 0.5


def step_gflop(config: ConvEConfig, batch_size: int) -> float:
    """Gflop of a step's products: once forward, twice backward."""
    kernel = config.channels * config.kernel_height * config.kernel_width
    a_query = config.features * (kernel + config.embedding_dim) + config.num_entities * config.embedding_dim
    return 6 * batch_size * a_query / 1e9


def threads_for(gflop: float, cores: int) -> int:
    return max(1, min(cores, int(gflop / GFLOP_A_THREAD)))
