"""The number format that workers make of an asked one, on a card or on this processor."""

from __future__ import annotations

import functools
from pathlib import Path

from kgops.gpus.facts import CardFacts

__all__ = ["effective_precision", "flags_in", "precision_of_products"]

_HAVE_BF16 = {
    "avx512_bf16",
    "amx_bf16",
    "svebf16",
}  # as the kernel names what `kgops.training.precision` asks torch for
_BF16, _FP16 = (8, 0), (7, 0)  # compute capabilities from which `auto` takes them


def effective_precision(asked: str, card: CardFacts | None) -> str:
    """What workers make of a number format on that card; an unknown capability is believed to have it."""
    if card is None:
        return asked if asked == "bf16" and _cpu_flags() & _HAVE_BF16 else "fp32"
    capability = card.compute_capability
    if asked == "auto":
        if capability is None:
            return "fp32"
        return "bf16" if capability >= _BF16 else "fp16" if capability >= _FP16 else "fp32"
    if asked in ("bf16", "tf32") and capability is not None and capability < _BF16:
        return "fp32"
    return asked


def precision_of_products(asked: str, card: CardFacts | None) -> str:
    """What TracIn makes of a number format on that card; an unknown capability is believed to have it."""
    if card is None:
        return asked if asked in ("bf16", "fp16") else "fp32"
    whole = card.compute_capability is None or card.compute_capability >= _BF16
    if asked in ("auto", "bf16"):
        return "bf16" if whole else "fp16"
    return asked


@functools.cache
def _cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return frozenset()
    return flags_in(text)


def flags_in(cpuinfo: str) -> frozenset[str]:
    """Of the first processor that Linux tells of: `flags` on x86, `Features` on ARM."""
    for line in cpuinfo.splitlines():
        name, _, told = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(told.split())
    return frozenset()
