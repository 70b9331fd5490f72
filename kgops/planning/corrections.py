"""Memory corrections: a factor on predictions, learned from measured runs, and how accurate predictions were."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

__all__ = ["Accuracy", "Correction", "Pair", "accuracy", "learn"]

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
