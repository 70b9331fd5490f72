"""Time corrections: factors between modelled and measured times, learned from runs on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

__all__ = ["Measured", "TimeCorrection", "learn_time"]


class Measured(NamedTuple):
    """Modelled and measured time of an epoch or a TracIn run."""

    modelled_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class TimeCorrection:
    """Measured over modelled seconds: median, lowest and highest of `samples` runs."""

    factor: float
    lowest: float
    highest: float
    samples: int

    def expected_s(self, modelled_s: float) -> tuple[float, float, float]:
        """Median, lowest and highest expected seconds."""
        return modelled_s * self.factor, modelled_s * self.lowest, modelled_s * self.highest


def learn_time(runs: Iterable[Measured]) -> TimeCorrection | None:
    """The correction from these runs; None without a measured run."""
    ratios = [run.measured_s / run.modelled_s for run in runs if run.modelled_s > 0 and run.measured_s > 0]
    if not ratios:
        return None
    return TimeCorrection(median(ratios), min(ratios), max(ratios), len(ratios))
