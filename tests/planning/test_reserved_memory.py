"""What a GPU's memory holds beside tensors: cuBLAS's workspaces, CUDA graphs, and segments of both."""

from __future__ import annotations

from typing import Any

import pytest

from kgops.gpus.facts import GpuFacts
from kgops.planning.memory_estimate import MemoryEstimate, predict
from kgops.workloads.graphs.counts import Answers, Counts
from kgops.workloads.job_files import read_job
from kgops.workloads.memory.ledger import Ledger, reserved_bytes
from kgops.workloads.train.sizes import TrainShape, train_shape

MIB = 1 << 20
H200 = GpuFacts("NVIDIA H200", (9, 0))
A100 = GpuFacts("NVIDIA A100-SXM4-40GB", (8, 0))
T4 = GpuFacts("Tesla T4", (7, 5))
TAILS = Answers(4_000, 10_000, 90_000, 90)


def shape_of(
    gpu: GpuFacts, test: int = 0, options: dict[str, Any] | None = None, **settings: Any
) -> TrainShape:
    counts = Counts(10_000, 20, 10_000, 0, test, TAILS, TAILS)
    table = {
        "workload": "train",
        "train": {"dataset": "x", "num_epochs": 3, **settings},
        "options": {"batch_size": 512, **(options or {})},
    }
    shape = train_shape(read_job(table, "test"), counts, gpu)
    assert shape is not None
    return shape


def predicted(gpu: GpuFacts, test: int = 0, graphs: bool = False, **settings: Any) -> MemoryEstimate:
    return predict(shape_of(gpu, test, {"cuda_graphs": graphs}, **settings), gpu)


@pytest.mark.parametrize(("gpu", "workspace"), [(H200, 32 * MIB), (A100, 8_519_680), (T4, 8_519_680)])
def test_each_thread_that_multiplies_has_a_workspace_of_cublas(gpu: GpuFacts, workspace: int) -> None:
    # Only a norm's way back multiplies in autograd's thread.
    assert predicted(gpu, batch_norm=False).parts["workspace"] == workspace
    assert predicted(gpu, batch_norm=True).parts["workspace"] == 2 * workspace


def test_a_training_without_its_graphs_has_no_workspace_but_that_of_its_tests() -> None:
    replayed, eager = predicted(H200, test=1000, graphs=True), predicted(H200, test=1000)
    assert replayed.parts["workspace"] == eager.parts["workspace"] == 2 * 32 * MIB
    assert eager.phases["test"] - replayed.phases["test"] == 32 * MIB


def test_a_captured_step_takes_its_tensors_once_more() -> None:
    with_graphs, eager = (predicted(T4, graphs=graphs, optimizer="adagrad") for graphs in (True, False))
    weights = eager.parts["weights"]  # and as large are the optimizer's roots and steps
    assert 2 * weights < with_graphs.reserved - eager.reserved < 3 * weights


def test_without_enough_steps_nothing_is_captured() -> None:
    assert shape_of(T4, options={"cuda_graphs": True}).captured == [False, True]
    assert shape_of(T4, options={"cuda_graphs": True, "batch_size": 4096}, num_epochs=1).captured == []


def test_what_graphs_own_nothing_else_uses_until_they_are_released() -> None:
    ledger = Ledger(512, record=True)
    ledger.flash("eager", 30 * MIB)
    with ledger.capture():  # empties the cache
        ledger.flash("captured", 40 * MIB)
    ledger.flash("eager", 30 * MIB)
    assert ledger.events is not None
    assert reserved_bytes(ledger.events) == 70 * MIB
    ledger.release_graphs()
    ledger.flash("after", 60 * MIB)
    assert reserved_bytes(ledger.events) == 70 * MIB


def test_a_stream_uses_no_memory_of_another() -> None:
    ledger = Ledger(512, record=True)
    ledger.flash("default", 30 * MIB)
    with ledger.own_stream():
        ledger.flash("own", 30 * MIB)
    assert ledger.events is not None
    assert reserved_bytes(ledger.events) == 60 * MIB


def test_an_assumed_context_is_called_so_and_a_measured_one_is_taken() -> None:
    assumed, measured = predict(shape_of(T4), T4), predict(shape_of(T4), T4, context=150 * MIB)
    assert assumed.total - measured.total == 250 * MIB
    (row,) = (row for row in assumed.explain() if row.part == "context")
    assert row.description.endswith("assumed")
    assert not row.is_measured
    (row,) = (row for row in measured.explain() if row.part == "context")
    assert (row.size, row.is_measured) == (150 * MIB, True)
