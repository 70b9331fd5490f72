"""What rules are told of a GPU is what the driver and the installed torch say, without importing torch."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_machine import GpuMachine
from nvml_standin import Gpu, Machine, Slice, StandIn, a100, ask_child, h200, t4

from kgops.gpus.facts import CudaProblem, GpuFacts, TorchBuild, cuda_problem, facts_here, torch_build


def see(gpu: str | None) -> tuple[GpuFacts | None, bool]:
    return facts_here(gpu), "torch" in sys.modules


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        *(("0", "NVIDIA H200"), ("2", "Tesla T4"), ("GPU-a100", "NVIDIA A100-SXM4-40GB")),
        *((None, "Tesla T4"), ("auto", "Tesla T4")),
    ],
)
def test_the_gpu_is_the_one_asked_for_or_the_least_capable_of_those_it_may_become(
    standin: StandIn, gpu: str | None, name: str
) -> None:
    standin.show(Machine((h200(), a100(), t4())))
    found, loaded_torch = standin.ask(see, gpu)
    assert found is not None
    assert found.name == name
    assert found.torch == torch_build()
    assert not loaded_torch


SLICED = replace(h200(), mig=True, slices=(Slice(0, "NVIDIA H200 MIG 1g.18gb", "MIG-a", 16384),))


@pytest.mark.parametrize(("gpu", "is_slice"), [(SLICED, True), (h200(), False), (t4(), False)])
def test_a_sliced_gpu_is_told_from_a_whole_one(standin: StandIn, gpu: Gpu, is_slice: bool) -> None:
    standin.show(Machine((gpu,)))
    found, _ = standin.ask(see, None)
    assert found is not None
    assert found.is_slice is is_slice


@pytest.mark.parametrize(
    ("version", "line", "build"),
    [
        ("2.11.0", "cuda: Optional[str] = '13.0'", TorchBuild((2, 11), (13, 0))),
        ("2.10.0+cu126", "cuda = '12.6'", TorchBuild((2, 10), (12, 6))),
        ("2.11.0a0+gitc0ffee", "cuda = '13.0'", TorchBuild((2, 11), (13, 0), is_wheel=False)),
        ("2.13.0+cpu", "cuda: Optional[str] = None", TorchBuild((2, 13), None)),
    ],
)
def test_the_build_of_torch_is_read_from_its_files(
    tmp_path: Path, version: str, line: str, build: TorchBuild
) -> None:
    package, about = tmp_path / "torch", tmp_path / f"torch-{version}.dist-info"
    for folder in (package, about):
        folder.mkdir()
    (package / "__init__.py").write_text("raise ImportError('nobody needs torch for that')\n")
    (package / "version.py").write_text(f"__version__ = '{version}'\n{line}\nhip: Optional[str] = None\n")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    assert ask_child({**os.environ, "PYTHONPATH": str(tmp_path)}, torch_build) == build


@pytest.mark.parametrize(
    ("driver_cuda", "torch_cuda"),
    [(13000, "13.0"), (13000, "13.2"), (13000, "12.6"), (12000, "12.8"), (12080, "12.6")],
)
def test_a_driver_runs_every_minor_version_of_its_major_one_and_all_older_ones(
    tmp_path: Path, driver_cuda: int, torch_cuda: str
) -> None:
    assert problem_of(tmp_path, driver_cuda, torch_cuda) is None


def problem_of(folder: Path, driver_cuda: int, torch_cuda: str | None) -> CudaProblem | None:
    machine = GpuMachine(folder, t4())
    machine.use_torch(cuda=torch_cuda)
    machine.show(t4(), driver="550.54.15", cuda=driver_cuda)
    problem, of_the_gpu = machine.ask(both_problems)
    assert problem == of_the_gpu
    return problem


def both_problems() -> tuple[CudaProblem | None, CudaProblem | None]:
    facts = facts_here(None)
    assert facts is not None
    return cuda_problem(), facts.cuda_problem
