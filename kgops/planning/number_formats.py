"""The number format that workers make of an asked one, on a GPU or on this CPU."""

from __future__ import annotations

import functools
from pathlib import Path

from kgops.gpus.facts import GpuFacts
from kgops.jobs.on_device import Place, training_precision
from kgops.jobs.on_device import precision_of_products as products

__all__ = ["applied_precision", "flags_in", "place_of", "precision_of_products"]

_HAVE_BF16 = {
    "avx512_bf16",
    "amx_bf16",
    "svebf16",
}  # as the kernel names what `kgops.training.precision` asks torch for


def place_of(gpu: GpuFacts | None) -> Place | None:
    """The device as far as options depend on it; None: a GPU of unknown capability."""
    if gpu is None:
        return Place(has_bf16=bool(_cpu_flags() & _HAVE_BF16))
    return None if gpu.compute_capability is None else Place(gpu.compute_capability)


def applied_precision(asked: str, gpu: GpuFacts | None) -> str:
    """What workers make of a number format on that GPU; an unknown capability is believed to have it."""
    place = place_of(gpu)
    if place is None:
        return "fp32" if asked == "auto" else asked
    return training_precision(asked, place)[0]


def precision_of_products(asked: str, gpu: GpuFacts | None) -> str:
    """What TracIn makes of a number format on that GPU; an unknown capability is believed to have it."""
    return products(asked, place_of(gpu) or Place((8, 0)))[0]


@functools.cache
def _cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return frozenset()
    return flags_in(text)


def flags_in(cpuinfo: str) -> frozenset[str]:
    """Of the first CPU that Linux tells of: `flags` on x86, `Features` on ARM."""
    for line in cpuinfo.splitlines():
        name, _, told = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(told.split())
    return frozenset()
