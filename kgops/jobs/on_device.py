"""Applied option values of a job on a device, with reasons; and which library multiplies faster on this CPU."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kgops.jobs.job import Job
from kgops.jobs.text import on_or_off

# Profiles chosen where the GPU has none of its own.
AUTO = "auto"  # for any machine
CPU = "cpu"  # without a GPU
CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")  # modes of compile that replay CUDA graphs
NO_GPU = "no CUDA device"
_BF16, _FP16 = (8, 0), (7, 0)  # compute capabilities from which `auto` chooses them
_BY_PRECISION = "set by the precision: only fp16 needs it"
NOTHING_TO_LOAD = "the triples live on the device: there is nothing to load"


class WorkerDevice(NamedTuple):
    """The device of a worker, as far as options depend on it; `has_bf16` is of a CPU."""

    capability: tuple[int, int] | None = None  # of a GPU; None: a CPU
    has_bf16: bool = False

    @property
    def kind(self) -> str:
        return "cpu" if self.capability is None else "cuda"


class Applied(NamedTuple):
    """An applied option; `value` None: only the worker knows it."""

    option: str
    value: Any
    reason: str | None = None


ValueAndReason = tuple[Any, str | None]


def training_precision(requested: str, device: WorkerDevice) -> tuple[str, str | None]:
    """The number format of a training's matrix products, and why it differs from the request."""
    if device.capability is None:
        return _cpu_precision(requested, device.has_bf16)
    gpu = f"compute capability {device.capability[0]}.{device.capability[1]}"
    if requested == "auto":
        return _fastest(device.capability), f"the fastest number format of this GPU ({gpu})"
    if requested in ("bf16", "tf32") and device.capability < _BF16:
        name = "TF32" if requested == "tf32" else requested
        return "fp32", f"{name} needs compute capability 8.0; this GPU has {gpu}"
    return requested, None


def _fastest(capability: tuple[int, int]) -> str:
    return "bf16" if capability >= _BF16 else "fp16" if capability >= _FP16 else "fp32"


def _cpu_precision(requested: str, has_bf16: bool) -> tuple[str, str | None]:
    if requested == "auto":
        return "fp32", NO_GPU
    if requested == "tf32":
        return "fp32", f"TF32 is a number format of CUDA GPUs; {NO_GPU}"
    if requested == "fp16":
        return "fp32", "a CPU sums fp16 products in fp16, which loses gradients"
    if requested == "bf16" and not has_bf16:
        return "fp32", "this CPU has no bf16 instructions (AVX512-BF16 or AMX)"
    return requested, None


def product_precision(requested: str, device: WorkerDevice) -> tuple[str, str | None]:
    """Number format of TracIn's products, and why it differs from the request. fp16 and bf16 work on any device."""
    if device.capability is None:
        return ("fp32", NO_GPU) if requested in ("auto", "tf32") else (requested, None)
    has_bf16 = device.capability >= _BF16
    if requested == "auto":
        return ("bf16" if has_bf16 else "fp16"), None
    if requested == "bf16" and not has_bf16:
        return "fp16", "bf16 needs compute capability 8.0"
    if requested == "tf32" and not has_bf16:
        return "fp32", "TF32 needs compute capability 8.0"
    return requested, None


def compile_mode(mode: str, device: WorkerDevice, *, checkpointing: bool) -> tuple[str, str | None]:
    """The torch.compile mode to try on this device, and why it differs from the request."""
    if mode == "off":
        return "off", None
    if device.capability is None:
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None:
            return "off", f"{NO_GPU}, and no C++ compiler ({compiler}) for the CPU"
        return "default", "CUDA graphs need a CUDA device" if mode in CUDA_GRAPH_MODES else None
    if device.capability < _FP16:
        has = f"{device.capability[0]}.{device.capability[1]}"
        return "off", f"torch.compile needs compute capability 7.0; this GPU has {has}"
    if mode in CUDA_GRAPH_MODES and checkpointing:
        return "default", f"{mode} replays CUDA graphs, which fail with gradient checkpointing"
    return mode, None


def skips_compile(job: Job, device: WorkerDevice) -> bool:
    """Whether a CPU run ignores the profile's `compile`: compiling takes longer than many trainings. A job without
    a profile, or with `auto` or `cpu`, compiles only because a person requested it."""
    return job.profile not in (None, AUTO, CPU) and device.kind == "cpu"


def cpu_processes(requested: int | str) -> tuple[int, str | None]:
    """Number of CPU processes that share a run, and why it differs from the request."""
    if isinstance(requested, str):
        return 1, f"{NO_GPU}; give a number of CPU processes, as in --devices 2"
    cores = len(os.sched_getaffinity(0))
    return min(requested, cores), f"this machine has {cores} cores" if requested > cores else None


def training_compile(job: Job, device: WorkerDevice, checkpointing: bool) -> ValueAndReason:
    mode = job.options.get("compile", "off")
    if mode == "off":
        return "off", None
    if skips_compile(job, device):
        return "off", NO_GPU
    return compile_mode(mode, device, checkpointing=checkpointing)


def gradient_scaling(requested: Mapping[str, Any], precision: str) -> Applied:
    scaled = precision == "fp16"
    why = _BY_PRECISION if requested.get("scale_gradients", scaled) != scaled else None
    return Applied("scale_gradients", on_or_off(scaled), why)


def applied_cleanup(job: Job, device: WorkerDevice) -> Applied:
    """On unless it is disabled, as in the group's scripts."""
    is_requested, has_gpu = bool(job.options.get("memory_cleanup", True)), device.kind == "cuda"
    return Applied(
        "memory_cleanup",
        on_or_off(is_requested and has_gpu),
        NO_GPU if is_requested and not has_gpu else None,
    )


def unknown_options(job: Job, known: Collection[str], doing: str) -> Iterator[Applied]:
    """The options that this work has not: of a profile, say."""
    for name, value in job.options.items():
        if name not in known:
            is_off = value in (False, "off")
            yield Applied(name, "off", None if is_off else f"{doing} has no such option")


# For less oneDNN takes longer to begin than MKL to end: multiplications, and rows or columns.
_WORTH, _NARROW = 1 << 19, 16
_ROUNDED = 32  # rows: of 16 a scan is as fast and keeps 30 MiB more, of 64 it takes a twentieth longer
# oneDNN's result is a tensor of its own, and it copies a first factor that is transposed: floats of a part of either,
# at most, and its rows or inner places, at least.
_PART, _FEWEST = 1 << 17, 32
_WIDE_LIMITS = ("all", "default", "avx512", "avx10")
_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}


@cache
def onednn_is_wider() -> bool:
    """Whether oneDNN has AVX-512 here where MKL has not."""
    try:
        described = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return False
    return is_wider_on(described, os.environ)


def is_wider_on(cpuinfo: str, environment: Mapping[str, str]) -> bool:
    """Who limits the instructions of torch or oneDNN means these products, too."""
    if environment.get("ATEN_CPU_CAPABILITY", "avx512").lower() != "avx512":
        return False
    if not environment.get("ONEDNN_MAX_CPU_ISA", "all").lower().startswith(_WIDE_LIMITS):
        return False
    vendor, flags = (re.search(rf"^{name}\s*:\s*(.*)$", cpuinfo, re.M) for name in ("vendor_id", "flags"))
    is_other = vendor is not None and vendor[1] != "GenuineIntel"
    return is_other and flags is not None and set(flags[1].split()) >= _AVX512


def uses_onednn(rows: int, inner: int, columns: int) -> bool:
    """Of a product of float32 matrices on a CPU."""
    is_worth_it = rows * inner * columns >= _WORTH and rows >= _NARROW and columns >= _NARROW
    return is_worth_it and onednn_is_wider()


def rounded_rows(rows: int) -> int:
    """Rows of a first factor, with those to be added so that few sizes come again: oneDNN makes a kernel for each size,
    which takes as long as a product and stays in memory."""
    return -(-rows // _ROUNDED) * _ROUNDED if rows >= _ROUNDED and onednn_is_wider() else rows


def rows_at_once(columns: int) -> int:
    """Of the result."""
    return max(_FEWEST, _PART // columns)


def inner_at_once(rows: int) -> int:
    """Where the first factor is transposed."""
    return max(_FEWEST, _PART // rows)
