"""A driver or a GPU that does not answer is told by its name, with what to do, beside the GPUs that do."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace

import pytest
from nvml_standin import Machine, StandIn, ask_child, t4
from test_nvml import opened

from kgops.gpus.nvml import open_nvml
from kgops.gpus.processes import tree_memory_mib
from kgops.gpus.readings import GpuReading, NvmlProblem


def problem() -> NvmlProblem:
    found = open_nvml()
    assert isinstance(found, NvmlProblem)
    return found


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has an NVIDIA driver")
def test_a_machine_without_a_driver_says_that_runs_use_the_cpu() -> None:
    found, modules = ask_child(dict(os.environ), problem_and_modules)
    assert found.kind == "no-library"
    assert "runs use the CPU" in found.hint
    assert "pynvml" not in modules


def problem_and_modules() -> tuple[NvmlProblem, set[str]]:
    return problem(), set(sys.modules)


def test_a_gpu_lost_while_watching_keeps_its_uuid_and_comes_back(standin: StandIn) -> None:
    standin.show(Machine((t4("GPU-a"), t4("GPU-b"))))
    lost, tree, back = standin.ask(lost_and_back, standin)
    assert [gpu.uuid for gpu in lost] == ["GPU-a", "GPU-b"]
    assert lost[1].problem is not None
    assert lost[1].processes is None
    assert tree == {"GPU-a": 0, "GPU-b": None}
    assert [gpu.problem for gpu in back] == [None, None]
    assert back[1].memory_total_mib == 15360


def lost_and_back(
    standin: StandIn,
) -> tuple[tuple[GpuReading, ...], dict[str, int | None], tuple[GpuReading, ...]]:
    with opened() as nvml:
        nvml.gpus()
        standin.show(Machine((t4("GPU-a"), replace(t4("GPU-b"), lost=15))))
        lost = nvml.gpus()
        tree = tree_memory_mib(lost, {1}, host_pids=True)
        standin.show(Machine((t4("GPU-a"), t4("GPU-b"))))
        return lost, tree, nvml.gpus()


def test_a_gpu_that_was_reset_is_read_by_its_new_handle(standin: StandIn) -> None:
    standin.show(Machine((t4(),)))
    (gpu,) = standin.ask(reset, standin)
    assert gpu.problem is None
    assert gpu.memory_total_mib == 15360


def reset(standin: StandIn) -> tuple[GpuReading, ...]:
    with opened() as nvml:
        nvml.gpus()
        standin.show(Machine((replace(t4(), lost=16),)))
        assert [gpu.problem.kind for gpu in nvml.gpus() if gpu.problem] == ["reset-required"]
        standin.show(Machine((t4(),), epoch=1))
        return nvml.gpus()
