"""The number format that workers make of an asked one, on a card or on this processor."""

from __future__ import annotations

import functools
from pathlib import Path

from kgops.gpus.facts import CardFacts
from kgops.jobs.on_device import Place, training_precision
from kgops.jobs.on_device import precision_of_products as products

__all__ = ["effective_precision", "flags_in", "place_of", "precision_of_products"]

_HAVE_BF16 = {
    "avx512_bf16",
    "amx_bf16",
    "svebf16",
}  # as the kernel names what `kgops.training.precision` asks torch for


def place_of(card: CardFacts | None) -> Place | None:
    """The device as far as options depend on it; None: a GPU of unknown capability."""
    if card is None:
        return Place(has_bf16=bool(_cpu_flags() & _HAVE_BF16))
    return None if card.compute_capability is None else Place(card.compute_capability)


def effective_precision(asked: str, card: CardFacts | None) -> str:
    """What workers make of a number format on that card; an unknown capability is believed to have it."""
    place = place_of(card)
    if place is None:
        return "fp32" if asked == "auto" else asked
    return training_precision(asked, place)[0]


def precision_of_products(asked: str, card: CardFacts | None) -> str:
    """What TracIn makes of a number format on that card; an unknown capability is believed to have it."""
    return products(asked, place_of(card) or Place((8, 0)))[0]


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
