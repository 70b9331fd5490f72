"""What rules are told of a GPU is what the driver and the installed torch say, without importing torch."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from nvml_standin import Gpu, Machine, Slice, StandIn, a100, ask_child, h200, t4

from kgops.gpus.facts import GpuFacts, TorchBuild, facts_here, torch_build


@pytest.fixture
def standin(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path)


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


def test_a_lost_gpu_is_none_to_choose_and_one_that_does_not_tell_its_capability_is_unknown(
    standin: StandIn,
) -> None:
    standin.show(Machine((replace(t4(), lost=15), a100())))
    found, _ = standin.ask(see, None)
    assert found is not None
    assert found.compute_capability == (8, 0)
    standin.show(Machine((replace(t4(), fails={"nvmlDeviceGetCudaComputeCapability": 3}),)))
    found, _ = standin.ask(see, None)
    assert found is not None
    assert found.compute_capability is None
    standin.show(Machine())
    assert standin.ask(see, None)[0] is None


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
