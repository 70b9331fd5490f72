"""Readings of GPUs through NVML, and what to do where the driver or a GPU does not answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from kgops.jobs.run_options import WantedGpus

ProblemKind = Literal[
    "no-library",
    "library-unusable",
    "no-pynvml",
    "driver-not-loaded",
    "no-permission",
    "version-mismatch",
    "gpu-lost",
    "reset-required",
    "silent",
    "other",
]


@dataclass(frozen=True, slots=True)
class NvmlProblem:
    """Why a machine, or one GPU of it, cannot be read, and what to do about it."""

    kind: ProblemKind
    message: str
    hint: str


class ProcessReading(NamedTuple):  # made anew for every process every second
    pid: int
    used_mib: int | None  # None: the driver lists the process and hides its memory
    is_mps_client: bool = False  # it shares the GPU through an MPS server
    sm_percent: int | None = (
        None  # share of the time its kernels ran; None: not read, or the driver has no count
    )


@dataclass(frozen=True, slots=True)
class SliceReading:
    """One MIG device, named to CUDA by its uuid."""

    index: int
    uuid: str | None = None
    name: str | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    memory_reserved_mib: int | None = None
    memory_accounting: Literal["v2", "v1"] | None = None
    processes: tuple[ProcessReading, ...] | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one time; None is unknown. `problem` is set when the GPU as a whole does not answer.

    `memory_accounting` says how used and free were counted: "v2" keeps the driver's reserve apart, "v1"
    (older drivers) counts it as used, and then `memory_reserved_mib` is None.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    memory_reserved_mib: int | None = None
    memory_accounting: Literal["v2", "v1"] | None = None
    utilization_percent: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    processes: tuple[ProcessReading, ...] | None = None
    mig_enabled: bool | None = None
    slices: tuple[SliceReading, ...] = ()
    problem: NvmlProblem | None = None

    @property
    def names(self) -> tuple[str | None, ...]:
        """What a request may call it: a MIG slice has its UUID alone, since the index is that of its GPU."""
        return (self.uuid,) if self.mig_enabled else (str(self.index), self.uuid)

    def is_wanted(self, wanted: WantedGpus) -> bool:
        """Whether the request includes it, by name or model."""
        if wanted.model is None:
            return wanted.includes(*self.names)
        from kgops.gpus.known import known_by_name  # 50 GPUs, which few requests need

        known = known_by_name(self.name) if self.name else None
        return wanted.includes(model=known.short_name if known else None)

    @property
    def uuids(self) -> frozenset[str]:
        """Its own and its slices'."""
        return frozenset(uuid for uuid in (self.uuid, *(one.uuid for one in self.slices)) if uuid)


def usable(gpus: Iterable[GpuReading]) -> tuple[GpuReading, ...]:
    """What a run can be given: of a GPU that MIG divides, CUDA sees the slices alone. Each reads like a GPU."""
    found: list[GpuReading] = []
    for gpu in gpus:
        if not gpu.mig_enabled:
            found.append(gpu)
        for part in gpu.slices:
            own = {name: getattr(part, name) for name in SliceReading.__slots__ if name != "index"}
            found.append(replace(gpu, slices=(), **{**own, "name": part.name or gpu.name}))
    return tuple(found)


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


LIBRARY = "libnvidia-ml.so.1"

# NVML's own codes, written out: pynvml is not imported where there is no driver.
_UNINITIALIZED, _NO_PERMISSION, _DRIVER_NOT_LOADED = 1, 4, 9
_GPU_LOST, _RESET_REQUIRED, _VERSION_MISMATCH = 15, 16, 18

# After one of these every further call to the GPU gives the same answer: stop asking it.
GONE = (_UNINITIALIZED, _DRIVER_NOT_LOADED, _GPU_LOST, _RESET_REQUIRED)

_PROBLEMS: dict[int, NvmlProblem] = {
    _DRIVER_NOT_LOADED: NvmlProblem(
        "driver-not-loaded",
        "the NVIDIA driver's library is installed, but its kernel module is not loaded (NVML error 9).",
        "try `sudo modprobe nvidia`, then `nvidia-smi`; after an update of the system, reboot. "
        "In a container, start it with the GPUs (`--gpus all`).",
    ),
    _NO_PERMISSION: NvmlProblem(
        "no-permission",
        "the NVIDIA driver does not let this user read it (NVML error 4).",
        "look at `ls -l /dev/nvidia*` and ask for the group that owns them; "
        "in a container or a Slurm job, ask for the GPU when starting it.",
    ),
    _VERSION_MISMATCH: NvmlProblem(
        "version-mismatch",
        "the NVIDIA library and the kernel module are of different versions (NVML error 18); "
        "the driver was updated while the old one was loaded.",
        "reboot, or stop every program on the GPUs and reload the module "
        "(`sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`).",
    ),
    _GPU_LOST: NvmlProblem(
        "gpu-lost",
        "the GPU has fallen off the bus (NVML error 15).",
        "look for `Xid` in `sudo dmesg`; the GPU comes back after a reset or, mostly, a reboot. "
        "If it happens again, check its power, cooling and slot.",
    ),
    _RESET_REQUIRED: NvmlProblem(
        "reset-required",
        "the GPU needs a reset before it can be used again (NVML error 16).",
        "stop every program on it, then `sudo nvidia-smi --gpu-reset -i N`, or reboot.",
    ),
}


def library_problem(loader_says: str) -> NvmlProblem:
    if "No such file" in loader_says:
        return NvmlProblem(
            "no-library",
            f"there is no NVIDIA driver on this machine ({LIBRARY} was not found).",
            "runs use the CPU; to use a GPU, install the NVIDIA driver, "
            "or start the container with the GPUs (`--gpus all`).",
        )
    return NvmlProblem(
        "library-unusable",
        f"the NVIDIA driver's library cannot be loaded: {loader_says}.",
        "reinstall the driver for this machine's architecture.",
    )


def problem_of(pynvml: Any, error: Any) -> NvmlProblem:
    code = int(error.value)
    if code == _VERSION_MISMATCH and (loaded := _kernel_module_version()):
        return replace(_PROBLEMS[code], message=f"{_PROBLEMS[code].message} The kernel has {loaded}.")
    if code in _PROBLEMS:
        return _PROBLEMS[code]
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return library_problem(str(error))
    return NvmlProblem(
        "other",
        f"the NVIDIA driver answers: {error} (NVML error {code}).",
        "see whether `nvidia-smi` works; `sudo dmesg` may say more.",
    )


def _kernel_module_version() -> str | None:
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123  pathlib takes long to import
            words = lines.readline().split()
    except OSError:
        return None
    # "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …": the words before vary by flavour.
    return next((word for word in words if word[0].isdigit() and "." in word), None)
