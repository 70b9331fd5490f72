"""Applied number format (precision) on a GPU or on this CPU."""

from __future__ import annotations

import functools
from pathlib import Path

from kgops.gpus.facts import GpuFacts
from kgops.jobs.on_device import WorkerDevice, training_precision
from kgops.jobs.on_device import product_precision as products

_HAVE_BF16 = {
    "avx512_bf16",
    "amx_bf16",
    "svebf16",
}  # as the kernel names what `kgops.maths.train.settings` asks torch for


def device_for(gpu: GpuFacts | None) -> WorkerDevice | None:
    """The device of a worker; None: a GPU of unknown capability."""
    if gpu is None:
        return WorkerDevice(has_bf16=bool(_cpu_flags() & _HAVE_BF16))
    return None if gpu.compute_capability is None else WorkerDevice(gpu.compute_capability)


def applied_precision(requested: str, gpu: GpuFacts | None) -> str:
    """Applied precision of training; a GPU of unknown capability is assumed to support it."""
    device = device_for(gpu)
    if device is None:
        return "fp32" if requested == "auto" else requested
    return training_precision(requested, device)[0]


def product_precision(requested: str, gpu: GpuFacts | None) -> str:
    """Applied precision of TracIn; a GPU of unknown capability is assumed to support it."""
    return products(requested, device_for(gpu) or WorkerDevice((8, 0)))[0]


@functools.cache
def _cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return frozenset()
    return cpu_flags_in(text)


def cpu_flags_in(cpuinfo: str) -> frozenset[str]:
    """Flags of the first CPU in /proc/cpuinfo: `flags` on x86, `Features` on ARM."""
    for line in cpuinfo.splitlines():
        name, _, flags = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(flags.split())
    return frozenset()
