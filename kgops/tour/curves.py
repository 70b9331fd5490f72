"""Deterministic sample curves that look like training."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

__all__ = ["SampleCurve", "wobble"]


def wobble(name: str, n: int) -> float:
    """The nth value of a deterministic pseudo-random sequence between -1 and 1."""
    digest = hashlib.sha256(f"{name} {n}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 0x7FFFFFFF - 1


@dataclass(frozen=True, slots=True)
class SampleCurve:
    """An exponential approach from `start` to `end`: `points` over `steps`, with `noise` relative to the range.

    From the fraction `lost_at` on, values are None, as when a loss diverges."""

    name: str
    start: float
    end: float
    points: int
    steps: int
    noise: float = 0.02
    lost_at: float | None = None

    def value(self, n: int) -> float | None:
        at = n / max(self.points - 1, 1)
        if self.lost_at is not None and at >= self.lost_at:
            return None
        progress = (1 - math.exp(-4 * at)) / (1 - math.exp(-4))
        return self.start + (self.end - self.start) * (
            progress + self.noise * (1 - at) * wobble(self.name, n)
        )

    def step(self, n: int) -> float:
        return round((n + 1) * self.steps / self.points)
