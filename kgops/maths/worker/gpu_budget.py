"""Keeps a worker to the GPU memory that its plan reserved for it."""

from __future__ import annotations

import os

import torch

from kgops.jobs.cluster import GPU_BUDGET

_MIB = 1 << 20


def keep_to_budget(device: torch.device) -> None:
    """Limits torch's allocator to the budget of this run on `device`; without a budget, or on a CPU, not at all."""
    budget = os.environ.get(GPU_BUDGET)
    if budget and device.type == "cuda":
        limit_gpu(device, round(float(budget) * _MIB))


def limit_gpu(device: torch.device, size: int) -> None:
    """torch gives cached segments back before it reserves more bytes than `size`; then it raises out of memory.

    Blocks of many sizes would otherwise leave segments in the cache that no later block fits into.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.set_per_process_memory_fraction(min(1.0, size / torch.cuda.mem_get_info(index)[1]), index)
