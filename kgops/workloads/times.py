"""Times by a roofline: what workloads share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Passes over the scores of a chunk: written by a product, turned into the gradient, read by two products.
SCORE_PASSES = 4
OPTIMIZER_PASSES = {"adam": 7, "adamw": 7, "adagrad": 5, "sgd": 3}  # over the parameters, read and written


@dataclass(frozen=True, slots=True)
class Rates:
    """Operations per second by number format, bytes per second, seconds per kernel launch."""

    flops: Mapping[str, float]
    bandwidth: float
    launch: float
    step: float = 0.0  # seconds of every step, whatever its size
    cache: int = 0
    overlaps: bool = True  # kernels are sent ahead while the GPU computes
    cores: int = 1  # that a run may use, of a CPU; the other rates are a core's

    def of(self, precision: str) -> float:
        return self.flops.get(precision, self.flops["fp32"])


@dataclass(frozen=True, slots=True)
class StepTime:
    """Modelled time of one optimizer step, and of a block of training triples for TracIn."""

    seconds: float
    launches: int
    limit: str  # what takes the longest: "launches", or of the GPU's work "operations" or "bytes"


def timed(operations: float, traffic: float, kernels: int, rates: Rates) -> StepTime:
    """`operations` and `traffic`: the seconds that the arithmetic and the memory would take alone."""
    launching = kernels * rates.launch
    busy = operations + traffic
    together = rates.step + (max(busy, launching) if rates.overlaps else busy + launching)
    limit = "launches" if launching > busy else "operations" if operations > traffic else "bytes"
    return StepTime(together, kernels, limit)


def spilled(scores: int, rates: Rates) -> int:
    """Scores that go through memory."""
    return 0 if 4 * scores <= rates.cache else scores
