"""Interface for progress, metrics, notes and options that training reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


class Report(Protocol):
    def option(self, name: str, requested: Any, applied: Any, reason: str | None) -> None: ...

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None: ...

    def metric(self, name: str, value: float, step: int) -> None: ...

    def memory(self, **mib: float) -> None: ...

    def artifact(self, path: Path, kind: str) -> None: ...

    def note(self, text: str) -> None: ...


class Progress:
    """Limits progress reports to one per `every_s` and the last; the rate is since the start."""

    def __init__(
        self,
        report: Report,
        phase: str,
        unit: str,
        *,
        done: int = 0,
        every_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report, self._phase, self._unit, self._clock = report, phase, unit, clock
        self._first, self._every_s = done, every_s
        self._started = self._said = clock()

    def __call__(self, done: float, total: float) -> None:
        now = self._clock()
        if done < total and now - self._said < self._every_s:
            return
        self._said = now
        rate = (done - self._first) / (now - self._started) if now > self._started else None
        self._report.progress(self._phase, done, total, self._unit, rate)
