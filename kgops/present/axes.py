"""Chart axis: the unit of a run's steps; values as coordinates, linear or logarithmic, and ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kgops.jobs.numbers import share_between
from kgops.workloads.results import trains
from storage.runs import Run
from storage.series import Bucket

FROM_ZERO = ("_per_s", "_seconds", "_mib")  # differences of these are judged against their size
_DAY_S = 86_400.0

_DIGITS = 1e12  # a step that many times smaller than a value is lost in it


def counts_epochs(run: Run) -> bool:
    return trains(run.workload)


def is_by_clock(buckets: Sequence[Bucket], run: Run) -> bool:
    """Samples have moments as steps. No training has a step for each second since 1970."""
    return bool(buckets) and min(one.first_step for one in buckets) >= run.submitted_at - _DAY_S


def broken_at(pauses: Sequence[float], buckets: Sequence[Bucket]) -> tuple[Bucket, ...]:
    """Samples by the clock with one that is not a number in each pause, so that no line is drawn through it."""
    out: list[Bucket] = []
    for one in buckets:
        between = (at for at in pauses if out and out[-1].last_step < at < one.first_step)
        out += [Bucket(0, None, None, None, at, at) for at in between]
        out.append(one)
    return tuple(out)


@dataclass(frozen=True)
class Axis:
    low: float
    high: float
    start: float
    end: float
    title: str
    logarithmic: bool
    marked: tuple[float, ...] = ()  # the only ticks, if given

    @classmethod
    def around(
        cls,
        low: float,
        high: float,
        start: float,
        end: float,
        *,
        at_most: int,
        least: float = 0.0,
        outside: bool = False,
    ) -> Axis:
        """Linear, whatever the values: about `at_most` round ticks, at least `least` apart, within the range or, with
        `outside`, around it; otherwise one at each end."""
        ticks = _round_ticks(low, high, at_most, least, outside)
        return cls(min(low, *ticks), max(high, *ticks), start, end, "", False, tuple(ticks))

    def __call__(self, value: float) -> float:
        if not self.low < self.high:
            return (self.start + self.end) / 2  # a single value is centred
        f: Callable[[float], float] = math.log if self.logarithmic else float
        return self.start + share_between(f(value), f(self.low), f(self.high)) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Position and label of each tick, with enough digits that every label is exact."""
        values = list(self.marked) or self._chosen()
        digits = 3
        while digits < 12 and any(float(f"{value:.{digits}g}") != value for value in map(_clean, values)):
            digits += 1
        return [(value, _number(_clean(value), digits)) for value in values]

    def _chosen(self) -> list[float]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks = [m * 10.0**d for d in decades for m in (1, 2, 5) if self.low <= m * 10.0**d <= self.high]
        if len(ticks) < 2:  # within one step of 1, 2, 5
            return _round_ticks(self.low, self.high, 5, 0.0, False)
        whole = [t for t in ticks if math.log10(t).is_integer()]
        return whole if len(ticks) > 9 and len(whole) > 1 else ticks


def _round_ticks(low: float, high: float, at_most: int, least: float, outside: bool) -> list[float]:
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [low, high]
    step = _round_step(max(span / at_most, least))
    if step is None or max(abs(low), abs(high)) / step > _DIGITS:
        return [low, high]
    wider = (math.floor(low / step), math.ceil(high / step))
    first, last = wider if outside else (math.ceil(low / step), math.floor(high / step))
    ticks = [tick for n in range(first, last + 1) if math.isfinite(tick := n * step)]
    return ticks if len(ticks) > 1 else [low, high]


def _round_step(rough: float) -> float | None:
    """The smallest 1, 2 or 5 times a power of ten that is not below `rough`; None where floats overflow."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 0.0
    steps = (power * factor for factor in (1, 2, 5, 10))
    return next((step for step in steps if math.isfinite(step) and step >= rough > 0), None)


def _clean(value: float) -> float:
    """Rounds off binary floating-point error."""
    return float(f"{value:.12g}")


def _number(value: float, digits: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 and value == round(value) else f"{value:.{digits}g}"
