"""GPU facts for rules and plans: of a GPU of this machine or of a known model."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from kgops.gpus.known import KnownGpu, known_by_name
from kgops.gpus.nvml import Nvml, open_nvml
from kgops.gpus.readings import GpuReading
from kgops.jobs.cluster import WantedGpus

__all__ = ["GpuFacts", "TorchBuild", "facts_here", "facts_of_known", "facts_of_reading", "torch_build"]


@dataclass(frozen=True, slots=True)
class TorchBuild:
    version: tuple[int, int]
    cuda: tuple[int, int] | None  # None: a CPU build
    is_wheel: bool = True  # as PyTorch publishes it; another build may have kernels for any GPU


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """None is unknown; rules that need the fact then change nothing."""

    name: str
    compute_capability: tuple[int, int] | None
    is_slice: bool = False
    is_wsl: bool = False
    torch: TorchBuild | None = None
    model: str | None = None  # its short name, where it is a known one


def facts_of_known(gpu: KnownGpu) -> GpuFacts:
    """Facts of a GPU that is not in this machine: machine and torch are unknown."""
    return GpuFacts(gpu.title, gpu.compute_capability, model=gpu.short_name)


def facts_of_reading(gpu: GpuReading) -> GpuFacts:
    known = known_by_name(gpu.name) if gpu.name else None
    return GpuFacts(
        gpu.name or f"GPU {gpu.index}",
        gpu.compute_capability,
        is_slice=bool(gpu.mig_enabled),
        is_wsl="microsoft" in os.uname().release.lower(),
        torch=torch_build(),
        model=known.short_name if known else None,
    )


def facts_here(gpu_request: str | None) -> GpuFacts | None:
    """Facts of the GPU that a job requests; None where there is none. Of several GPUs the one of least compute
    capability, since a plan for it suits the others."""
    opened = open_nvml()
    if not isinstance(opened, Nvml):
        return None
    with opened:
        gpus = [gpu for gpu in opened.gpus() if gpu.problem is None]
    wanted = WantedGpus.read(gpu_request)
    candidates = [gpu for gpu in gpus if wanted.includes(str(gpu.index), gpu.uuid)]
    known = [gpu for gpu in candidates if gpu.compute_capability is not None]
    chosen = min(
        known, key=lambda gpu: gpu.compute_capability or (0, 0), default=candidates[0] if candidates else None
    )
    return None if chosen is None else facts_of_reading(chosen)


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
