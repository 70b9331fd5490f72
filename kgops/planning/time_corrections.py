"""What this machine's own runs say about how long things take: modelled against measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

__all__ = ["Measured", "Pace", "pace_of"]


class Measured(NamedTuple):
    """An epoch, or a TracIn run, as the roofline had it and as it went."""

    modelled_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class Pace:
    """Measured over modelled seconds: the middle of `samples` runs, and the lowest and highest of them."""

    factor: float
    lowest: float
    highest: float
    samples: int

    def expected_s(self, modelled_s: float) -> tuple[float, float, float]:
        """The middle, and the range within which runs here have been."""
        return modelled_s * self.factor, modelled_s * self.lowest, modelled_s * self.highest


def pace_of(runs: Iterable[Measured]) -> Pace | None:
    """None before the first run was measured."""
    ratios = [run.measured_s / run.modelled_s for run in runs if run.modelled_s > 0 and run.measured_s > 0]
    if not ratios:
        return None
    return Pace(median(ratios), min(ratios), max(ratios), len(ratios))
