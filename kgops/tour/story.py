"""The description of a sample run of the tour, on a fictional machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kgops.planning.oom_fallbacks import Fallback
from kgops.tour.curves import SampleCurve
from storage.influences import TestTriple

__all__ = [
    "GPU",
    "SAMPLE_DATA",
    "SAMPLE_MARK",
    "SAMPLE_TAG",
    "OptionValue",
    "SampleAttempt",
    "SampleRun",
    "environment",
]

SAMPLE_DATA = "sample data"
SAMPLE_TAG = "sample-data"
SAMPLE_MARK = "(sample data)"  # behind names
GPU = {"name": f"Tesla T4 {SAMPLE_MARK}", "uuid": "GPU-sample-data", "mib": 15360}


@dataclass(frozen=True, slots=True)
class OptionValue:
    """An option's requested and applied value, and the reason where they differ."""

    name: str
    requested: str
    applied: str
    why: str | None = None
    by: str = "profile t4"


@dataclass(frozen=True, slots=True)
class SampleAttempt:
    """An attempt that takes `share` of the run's time. `fallback` is applied after it."""

    outcome: str
    share: float = 1.0
    reason: str | None = None
    fallback: Fallback | None = None
    peak: float = 1.0  # of the run's


@dataclass(frozen=True)
class SampleRun:
    """A sample run that started `days` ago and took `minutes`."""

    workload: str
    label: str
    settings: dict[str, Any]
    days: float
    minutes: float
    state: str = "succeeded"
    reason: str | None = None
    tries: Sequence[SampleAttempt] = ()
    options: Sequence[OptionValue] = ()
    curves: Sequence[SampleCurve] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    parts_mib: dict[str, float] = field(default_factory=dict)  # memory estimate by part
    took_mib: float | None = None  # measured peak on the GPU, or on the host without one
    on_gpu: bool = True
    traced: Sequence[TestTriple] = ()
    progress: tuple[str, float, float, str] | None = None  # phase, done, total, unit
    tags: Sequence[str] = ()
    notes: Sequence[str] = ()
    log: Sequence[str] = ()

    @property
    def attempts(self) -> Sequence[SampleAttempt]:
        return self.tries or (SampleAttempt(self.state, reason=self.reason),)

    @property
    def fallbacks(self) -> list[Fallback]:
        return [one.fallback for one in self.attempts if one.fallback is not None]

    @property
    def predicted_mib(self) -> float | None:
        return sum(self.parts_mib.values()) or None


def environment() -> dict[str, Any]:
    """The environment of a fictional machine."""
    return {
        "python": SAMPLE_MARK,
        "packages": {"torch": SAMPLE_MARK},
        "machine": {"host": SAMPLE_DATA, "processor": SAMPLE_DATA, "cores": 8},
        "driver": None,
        "gpus": [GPU],
        "git": None,
        "cwd": "/",
        "variables": {},
    }
