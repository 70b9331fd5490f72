"""Corrections of predictions by what runs measured: memory and time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

__all__ = [
    "Accuracy",
    "Correction",
    "Measured",
    "Pair",
    "TimeCorrection",
    "accuracy",
    "learn",
    "learn_time",
]

_LEAST = 3  # runs needed to learn a factor
_FURTHEST = 3.0  # a larger factor is a wrong measurement, or another run on the GPU


class Pair(NamedTuple):
    """Uncorrected predicted memory and measured memory of a run."""

    predicted_mib: float
    measured_mib: float


@dataclass(frozen=True, slots=True)
class Correction:
    """`factor` makes nine of ten of `samples` runs fit; 1 where predictions were high enough."""

    factor: float
    samples: int

    @property
    def description(self) -> str:
        return f"learned from {self.samples} runs on this GPU (x {self.factor:.3f})"


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Relative errors of predictions over `samples` runs; negative: predicted too little."""

    samples: int
    median_error: float  # of the absolute errors
    worst_under: float  # 0 where none was under
    worst_over: float


def learn(pairs: Iterable[Pair]) -> Correction | None:
    """From the runs of one GPU; None where too few have been measured.

    Predictions too low are raised at once, since that is the dangerous side; too high ones are lowered the
    more, the more runs agree: half of the way after three.
    """
    ratios = sorted(_ratios(pairs))
    if len(ratios) < _LEAST:
        return None
    high = ratios[min(len(ratios) - 1, math.ceil(0.9 * len(ratios)) - 1)]
    if high < 1:
        trust = 1 - _LEAST / (len(ratios) + _LEAST)
        high = 1 - (1 - high) * trust
    return Correction(high, len(ratios))


def accuracy(pairs: Iterable[Pair], *, furthest: float = _FURTHEST) -> Accuracy | None:
    """How good predictions have been; None without runs. A factor beyond `furthest` is no prediction's error."""
    errors = [1 / ratio - 1 for ratio in _ratios(pairs, furthest)]
    if not errors:
        return None
    return Accuracy(len(errors), median(map(abs, errors)), min(0.0, *errors), max(0.0, *errors))


def _ratios(pairs: Iterable[Pair], furthest: float = _FURTHEST) -> Iterable[float]:
    for predicted, measured in pairs:
        if predicted > 0 and measured > 0 and 1 / furthest <= measured / predicted <= furthest:
            yield measured / predicted


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
