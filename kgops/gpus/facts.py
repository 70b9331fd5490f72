"""GPU facts for rules and plans: of a GPU of this machine or of a known model."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from kgops.gpus.devices import is_wsl2
from kgops.gpus.known import KnownGpu, known_by_name
from kgops.gpus.readings import GpuReading, Snapshot, usable
from kgops.gpus.sampler import read_within
from kgops.jobs.run_options import WantedGpus


@dataclass(frozen=True, slots=True)
class TorchBuild:
    version: tuple[int, int]
    cuda: tuple[int, int] | None  # None: a CPU build
    is_wheel: bool = True  # as PyTorch publishes it; another build may have kernels for any GPU


@dataclass(frozen=True, slots=True)
class CudaProblem:
    """Why the installed torch can use no GPU of this machine, and what to do about it."""

    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class UnusableGpus:
    """How many GPUs of this machine the installed torch cannot use: runs use the CPU."""

    count: int
    problem: CudaProblem

    @property
    def headline(self) -> str:
        return f"CPU only: {self.count} GPU{'' if self.count == 1 else 's'} unusable"

    @property
    def why(self) -> str:
        return f"{self.problem.reason}; {self.problem.hint}"

    def __str__(self) -> str:
        return f"{self.headline}: {self.why}"


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """None is unknown; rules that need the fact then change nothing."""

    name: str
    compute_capability: tuple[int, int] | None
    is_slice: bool = False
    is_wsl: bool = False
    torch: TorchBuild | None = None
    model: str | None = None  # its short name, where it is a known one
    cuda_problem: CudaProblem | None = None


def facts_of_known(gpu: KnownGpu) -> GpuFacts:
    """Facts of a GPU that is not in this machine: machine and torch are unknown."""
    return GpuFacts(gpu.title, gpu.compute_capability, model=gpu.short_name)


def facts_of_reading(gpu: GpuReading, read: Snapshot | None = None) -> GpuFacts:
    """`read`: has the driver to compare the installed torch with."""
    known = known_by_name(gpu.name) if gpu.name else None
    build = torch_build()
    return GpuFacts(
        gpu.name or f"GPU {gpu.index}",
        gpu.compute_capability,
        is_slice=bool(gpu.mig_enabled),
        is_wsl=is_wsl2(),
        torch=build,
        model=known.short_name if known else None,
        cuda_problem=_cuda_problem_with(read, build) if read is not None else None,
    )


def facts_here(gpu_request: str | None) -> GpuFacts | None:
    """Facts of the GPU that a job requests; None where there is none. Of several GPUs the one of least compute
    capability, since a plan for it suits the others."""
    read = read_within()
    wanted = WantedGpus.read(gpu_request)
    candidates = [gpu for gpu in usable(read.gpus) if gpu.problem is None and gpu.is_wanted(wanted)]
    chosen = min(candidates, key=lambda gpu: gpu.compute_capability or (99, 0), default=None)
    return None if chosen is None else facts_of_reading(chosen, read)


def cuda_problem() -> CudaProblem | None:
    """What keeps the installed torch from GPUs; None: nothing, or nothing is known."""
    build = torch_build()
    if build is not None and build.cuda is None:
        return _CPU_BUILD
    read = read_within()
    if read.problem is not None:
        return None if _has_cuda_driver() else _NO_DRIVER
    return _cuda_problem_with(read, build)


def unusable_gpus(read: Snapshot) -> UnusableGpus | None:
    """The GPUs of this reading, where the installed torch can use none of them."""
    there = [gpu for gpu in usable(read.gpus) if gpu.problem is None]
    problem = _cuda_problem_with(read, torch_build()) if there else None
    return None if problem is None else UnusableGpus(len(there), problem)


def _cuda_problem_with(read: Snapshot, build: TorchBuild | None) -> CudaProblem | None:
    """What keeps this build of torch from GPUs of this driver."""
    if build is None:
        return None
    if build.cuda is None:
        return _CPU_BUILD
    newest, driver = read.cuda_version, read.driver_version
    # A driver runs every minor version of its major one: CUDA 12.8's programs need a driver for 12.0, none for 12.8.
    if newest is None or newest[0] >= build.cuda[0]:
        return None
    oldest = _OLDEST_DRIVERS.get(build.cuda[0])
    update = f"update the driver to {oldest} or newer" if oldest else "update the driver"
    return CudaProblem(
        f"driver {driver or 'n/a'} runs CUDA up to {dotted(newest)}, "
        f"and torch {dotted(build.version)} is built for CUDA {dotted(build.cuda)}",
        f"{update}, or install a build of torch for CUDA {newest[0]}",
    )


def _has_cuda_driver() -> bool:
    """Some machines have CUDA without NVML: Jetson boards, for instance."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


_NO_DRIVER = CudaProblem("this machine has no NVIDIA driver", "install the driver")
_CPU_BUILD = CudaProblem("the installed torch is a CPU build", "install a CUDA build of torch")

# NVIDIA, "CUDA Compatibility", minor version compatibility: the first driver of each major version of CUDA.
_OLDEST_DRIVERS = {11: 450, 12: 525, 13: 580}


def dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def torch_build() -> TorchBuild | None:
    """Read from torch's package files: importing torch takes a second and 200 MB."""
    try:
        text = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
    spec = importlib.util.find_spec("torch")
    about = (Path(spec.origin).parent / "version.py").read_text() if spec and spec.origin else ""
    cuda = re.search(r"^cuda\b.*=\s*['\"]([\d.]+)['\"]", about, re.MULTILINE)
    version = _numbers(text)
    if version is None:
        return None
    is_wheel = re.fullmatch(r"\d+\.\d+\.\d+(\+(cu\d+|cpu))?", text) is not None
    return TorchBuild(version, _numbers(cuda[1]) if cuda else None, is_wheel)


def _numbers(version: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def driver_here() -> str | None:
    """Version of this machine's driver."""
    return read_within().driver_version
