"""GPU readings at one time, as plain values; None where the driver has no answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ProblemKind = Literal[
    "no-library",
    "library-unusable",
    "no-pynvml",
    "driver-not-loaded",
    "no-permission",
    "version-mismatch",
    "gpu-lost",
    "reset-required",
    "other",
]


@dataclass(frozen=True, slots=True)
class NvmlProblem:
    """Why a machine, or one GPU of it, cannot be read, and what to do about it."""

    kind: ProblemKind
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class ProcessReading:
    pid: int
    used_mib: int | None  # None: the driver lists the process and hides its memory


@dataclass(frozen=True, slots=True)
class SliceReading:
    """One MIG device, named to CUDA by its uuid."""

    index: int
    uuid: str | None
    name: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    memory_free_mib: int | None
    memory_reserved_mib: int | None
    memory_accounting: Literal["v2", "v1"] | None
    processes: tuple[ProcessReading, ...] | None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one time. `problem` is set when the GPU as a whole does not answer.

    `memory_accounting` says how used and free were counted: "v2" keeps the driver's reserve apart, "v1"
    (older drivers) counts it as used, and then `memory_reserved_mib` is None.
    """

    index: int
    uuid: str | None
    name: str | None
    compute_capability: tuple[int, int] | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    memory_free_mib: int | None
    memory_reserved_mib: int | None
    memory_accounting: Literal["v2", "v1"] | None
    utilization_percent: int | None
    temperature_c: int | None
    power_w: float | None
    power_limit_w: float | None
    processes: tuple[ProcessReading, ...] | None
    mig_enabled: bool | None
    slices: tuple[SliceReading, ...]
    problem: NvmlProblem | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All GPUs as one sampling round found them, or the problem that kept NVML from opening."""

    number: int
    taken_at: float
    took_s: float
    gpus: tuple[GpuReading, ...]
    driver_version: str | None
    cuda_version: tuple[int, int] | None
    problem: NvmlProblem | None


def silent_gpu(index: int, uuid: str | None, problem: NvmlProblem) -> GpuReading:
    return GpuReading(
        index=index,
        uuid=uuid,
        name=None,
        compute_capability=None,
        memory_total_mib=None,
        memory_used_mib=None,
        memory_free_mib=None,
        memory_reserved_mib=None,
        memory_accounting=None,
        utilization_percent=None,
        temperature_c=None,
        power_w=None,
        power_limit_w=None,
        processes=None,
        mig_enabled=None,
        slices=(),
        problem=problem,
    )
