"""How many threads a step on the CPU is worth: its size decides, never a clock.

A measured choice would differ from attempt to attempt, and with the number of threads the last bits of
every sum: a resumed run would no longer have the weights of one never stopped.
"""

from __future__ import annotations

from kgops.models.conve import ConvEConfig

__all__ = ["step_gflop", "threads_for"]

# Below this a thread has less to do than to wait for the others.
GFLOP_A_THREAD = 0.5


def step_gflop(config: ConvEConfig, batch_size: int) -> float:
    """Multiplications and additions of a step's products, forward and twice backward."""
    kernel = config.channels * config.kernel_height * config.kernel_width
    a_query = config.features * (kernel + config.embedding_dim) + config.num_entities * config.embedding_dim
    return 6 * batch_size * a_query / 1e9


def threads_for(gflop: float, cores: int) -> int:
    return max(1, min(cores, int(gflop / GFLOP_A_THREAD)))
