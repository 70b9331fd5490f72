"""Problems that keep GPUs from being read, with hints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgops.gpus.readings import NvmlProblem

__all__ = ["GONE", "LIBRARY", "library_problem", "problem_of"]

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
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
            words = lines.readline().split()
    except OSError:
        return None
    # "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …": the words before vary by flavour.
    return next((word for word in words if word[0].isdigit() and "." in word), None)
