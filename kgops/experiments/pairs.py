"""Ratios of paired runs, with median and quartiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kgops.jobs.numbers import median, quartiles
from storage.benches import Pair

__all__ = ["Quantity", "Spread", "ratios", "spread_of", "troubles"]

Quantity = Literal["speed", "memory"]
# Limits of a ratio, whose inverses and logarithms are finite.
_LEAST, _MOST = 1e-300, 1e300


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of ratios; above 1 the variant is faster or needs less memory."""

    median: float
    low: float
    high: float
    n: int


def spread_of(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    return Spread(median(values), *quartiles(values), len(values))


def ratios(pairs: Iterable[Pair], quantity: Quantity) -> list[float]:
    """Baseline / variant for each pair in which both have a comparable value."""
    values = []
    for pair in pairs:
        before, after = _metrics(pair, quantity)
        if before is not None and after is not None and before > 0 and after > 0:
            values.append(min(max(before / after, _LEAST), _MOST))
    return values


def troubles(pairs: Iterable[Pair]) -> list[str]:
    """Distinct reasons why pairs have no ratio."""
    reasons = [
        f"{who}{one['trouble']}"
        for pair in pairs
        for who, one in (("the baseline: ", pair.baseline), ("", pair.measured))
        if one.get("trouble")
    ]
    return list(dict.fromkeys(reasons))


def _metrics(pair: Pair, quantity: Quantity) -> tuple[float | None, float | None]:
    a, b = pair.baseline, pair.measured
    if a.get("trouble") or b.get("trouble"):
        return None, None
    if quantity == "memory":
        return (a["memory_mib"], b["memory_mib"]) if a["memory_of"] == b["memory_of"] else (None, None)
    if a["seconds_of"] == b["seconds_of"]:
        return a["seconds"], b["seconds"]
    return a["took_s"], b["took_s"]
