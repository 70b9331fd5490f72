"""A worker holds no more of a GPU than its plan reserved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from kgops.jobs.cluster import GPU_BUDGET
from kgops.maths.worker.devices import keep_to_budget

MIB = 1 << 20
BUDGET = 400


@pytest.fixture
def gpu() -> Iterator[torch.device]:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    yield torch.device("cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.gpu
def test_blocks_of_growing_sizes_give_back_what_none_of_them_fits_into(gpu: torch.device) -> None:
    with mock.patch.dict(os.environ, {GPU_BUDGET: str(BUDGET)}):
        keep_to_budget(gpu)
    for mib in range(100, 130):  # together ten times the budget
        torch.empty(mib * MIB, dtype=torch.uint8, device=gpu)
    assert torch.cuda.max_memory_reserved() <= BUDGET * MIB
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty((BUDGET + 1) * MIB, dtype=torch.uint8, device=gpu)


def test_a_cpu_and_a_run_without_a_budget_are_left_alone() -> None:
    with mock.patch.dict(os.environ, {GPU_BUDGET: "1"}):
        keep_to_budget(torch.device("cpu"))
    with mock.patch.dict(os.environ, {GPU_BUDGET: ""}):
        keep_to_budget(torch.device("cuda"))
