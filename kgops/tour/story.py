"""What a tour tells: runs as one would describe them, on a machine that there is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kgops.planning.oom_fallbacks import Fallback
from kgops.tour.curves import Shape
from storage.influences import TestTriple

__all__ = ["GPU", "MADE_UP", "MADE_UP_TAG", "MARK", "Asked", "Story", "Try", "environment"]

MADE_UP = "made up for the tour"
MADE_UP_TAG = "made-up"
MARK = "(made up)"  # behind the name of whatever is
GPU = {"name": f"Tesla T4 {MARK}", "uuid": "GPU-made-up-for-the-tour", "mib": 15360}


@dataclass(frozen=True, slots=True)
class Asked:
    """An option: what was asked, what came of it, and why, where that is something else."""

    name: str
    asked: str
    applied: str
    why: str | None = None
    by: str = "profile t4"


@dataclass(frozen=True, slots=True)
class Try:
    """An attempt, for `share` of the run's time. `fallback` is what gives way after it."""

    outcome: str
    share: float = 1.0
    reason: str | None = None
    fallback: Fallback | None = None
    peak: float = 1.0  # of the run's


@dataclass(frozen=True)
class Story:
    """What happened, as one would tell it; `days` ago, for so many `minutes`."""

    workload: str
    label: str
    settings: dict[str, Any]
    days: float
    minutes: float
    state: str = "succeeded"
    reason: str | None = None
    tries: Sequence[Try] = ()
    options: Sequence[Asked] = ()
    shapes: Sequence[Shape] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    parts_mib: dict[str, float] = field(default_factory=dict)  # what was predicted of its memory
    took_mib: float | None = None  # of the GPU, or of the host where it used none
    on_gpu: bool = True
    traced: Sequence[TestTriple] = ()
    progress: tuple[str, float, float, str] | None = None  # phase, done, of, unit
    tags: Sequence[str] = ()
    notes: Sequence[str] = ()
    log: Sequence[str] = ()

    @property
    def attempts(self) -> Sequence[Try]:
        return self.tries or (Try(self.state, reason=self.reason),)

    @property
    def fallbacks(self) -> list[Fallback]:
        return [one.fallback for one in self.attempts if one.fallback is not None]

    @property
    def predicted_mib(self) -> float | None:
        return sum(self.parts_mib.values()) or None


def environment() -> dict[str, Any]:
    """Of a machine that there is not."""
    return {
        "python": MARK,
        "packages": {"torch": MARK},
        "machine": {"host": MADE_UP, "processor": MADE_UP, "cores": 8},
        "driver": None,
        "gpus": [GPU],
        "git": None,
        "cwd": "/",
        "variables": {},
    }
