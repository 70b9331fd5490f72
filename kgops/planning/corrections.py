"""Corrections of predictions by what runs measured: memory and time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

_LEAST = 3  # runs needed to learn a factor
_NEAREST = 9  # runs whose times count
_AS_NEAR = math.log(4)  # a run that much further in size than the nearest tells less than it
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

    Low predictions are raised at once, since they are dangerous. High ones are lowered as more runs agree: half of
    the way after three.
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


class ExpectedTime(NamedTuple):
    """Median, lowest and highest expected seconds, from `runs` past runs."""

    s: float
    low_s: float
    high_s: float
    runs: int


@dataclass(frozen=True, slots=True)
class TimeCorrection:
    """Measured over modelled seconds of past runs of one kind."""

    runs: tuple[Measured, ...]

    def expected(self, modelled_s: float) -> ExpectedTime:
        """By the runs nearest in size: what every run takes once is a large part of a small one."""

        def apart(run: Measured) -> float:
            return abs(math.log(run.modelled_s / modelled_s)) if modelled_s > 0 else run.modelled_s

        nearest = sorted(self.runs, key=apart)[:_NEAREST]
        alike = [run for run in nearest if apart(run) <= apart(nearest[0]) + _AS_NEAR]
        ratios = [run.measured_s / run.modelled_s for run in alike]
        low, middle, high = (modelled_s * ratio for ratio in (min(ratios), median(ratios), max(ratios)))
        return ExpectedTime(middle, low, high, len(alike))


def learn_time(runs: Iterable[Measured]) -> TimeCorrection | None:
    """The correction from these runs; None without a measured run."""
    measured = tuple(run for run in runs if run.modelled_s > 0 and run.measured_s > 0)
    return TimeCorrection(measured) if measured else None
