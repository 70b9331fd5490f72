"""One metric of up to eight runs as curves over steps, epochs or time, read afresh while runs go on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kgops.jobs.events import LIBRARIES, PROCESS_PEAK
from kgops.jobs.numbers import line_between, middle, share_between
from kgops.present.axes import counts_epochs, is_by_clock
from kgops.present.run_detail import read_run_detail
from kgops.settings import Home
from storage import series
from storage.database import Connection
from storage.runs import Run
from storage.series import Bucket

MOST_RUNS = 8
# Of a curve; longer ones are read as means. Several together are drawn from fewer: two for each column of a screen.
_POINTS, _POINTS_OF_SEVERAL = 1024, 512
_COUNTED_BY = "loss"  # the curve that tells which epoch a moment belongs to

Axis = str  # "epoch", "step" or "time"


class ChartPoint(NamedTuple):
    """`value` None: not a number. Of several points it is the mean, and `low` and `high` are their range."""

    x: float
    value: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class ChartRun:
    """One run's curve; `buckets` is empty where it has none of that name."""

    run: Run
    buckets: tuple[Bucket, ...]
    times: tuple[float, ...]  # when each bucket began
    epochs: tuple[tuple[float, float], ...]  # moments and the epoch then, for what is sampled by the clock
    estimate_mib: float | None = None
    limit_mib: float | None = None
    pauses: tuple[float, ...] = ()

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What its points can be drawn over; first what they were reported for."""
        unit = "epoch" if counts_epochs(self.run) else "step"
        if is_by_clock(self.buckets, self.run):
            return ("time", unit) if len(self.epochs) > 1 else ("time",)
        return (unit, "time") if len(set(self.times)) > 1 else (unit,)

    def points(self, axis: Axis) -> list[ChartPoint]:
        """In the order of `axis`; time is in seconds since the run started, with a gap in each pause of the run."""
        x = self._place(axis)
        found = [
            ChartPoint(x(i, one), one.mean, one.min, one.max, one.n)
            for i, one in enumerate(self.buckets)
            if axis != "time" or i < len(self.times) or is_by_clock(self.buckets, self.run)
        ]
        found.sort(key=lambda point: point.x)
        if axis != "time" or not found:
            return found
        inside = [at for at in map(self._since, self.pauses) if found[0].x < at < found[-1].x]
        gaps = [ChartPoint(at, None, None, None, 0) for at in inside]
        return sorted([*found, *gaps], key=lambda point: point.x) if gaps else found

    def _since(self, moment: float) -> float:
        return moment - (self.run.started_at or self.run.submitted_at)

    def _place(self, axis: Axis) -> Callable[[int, Bucket], float]:
        if is_by_clock(self.buckets, self.run):
            if axis == "time":
                return lambda i, one: self._since(middle(one.first_step, one.last_step))
            return lambda i, one: self._epoch_at(middle(one.first_step, one.last_step))
        if axis == "time":
            return lambda i, one: self._since(self.times[i])
        return lambda i, one: middle(one.first_step, one.last_step)

    def _epoch_at(self, moment: float) -> float:
        right = bisect_right(self.epochs, (moment,))
        if right in (0, len(self.epochs)):
            return self.epochs[min(right, len(self.epochs) - 1)][1]
        (before, start), (after, end) = self.epochs[right - 1 : right + 1]
        return line_between(start, end, share_between(moment, before, after))


def axes(runs: Sequence[ChartRun]) -> tuple[Axis, ...]:
    """What all runs that have the curve can be drawn over; never empty."""
    drawn = [one.axes for one in runs if one.buckets]
    common = tuple(axis for axis in (drawn[0] if drawn else ()) if all(axis in other for other in drawn))
    return common or ("step",)


def read_chart(home: Home, conn: Connection, name: str, numbers: Sequence[int]) -> tuple[ChartRun, ...]:
    """Runs that are no longer in the record are left out."""
    points = _POINTS if len(numbers) == 1 else _POINTS_OF_SEVERAL
    read = (_read_one(home, conn, name, number, points) for number in numbers[:MOST_RUNS])
    return tuple(one for one in read if one is not None)


def _read_one(home: Home, conn: Connection, name: str, number: int, points: int) -> ChartRun | None:
    detail = read_run_detail(home, conn, number, points=points, only=(name, LIBRARIES, PROCESS_PEAK))
    if detail is None:
        return None
    buckets = next((one.buckets for one in detail.curves if one.name == name), ())
    epochs: list[tuple[float, float]] = []
    if is_by_clock(buckets, detail.run):
        counted = series.curve(conn, number, _COUNTED_BY, at_most=points)
        times = series.times(conn, number, _COUNTED_BY, at_most=points)
        epochs = sorted((at, one.first_step) for at, one in zip(times, counted, strict=False))
    return ChartRun(
        detail.run,
        buckets,
        tuple(series.times(conn, number, name, at_most=points)),
        tuple(epochs),
        detail.estimate_mib(name),
        detail.limit_mib(name),
        detail.pauses,
    )


def smoothed(values: Sequence[float | None], weight: float) -> list[float | None]:
    """The exponential running mean, without a pull to zero at its start; a gap stays one."""
    out: list[float | None] = []
    mean, seen = 0.0, 0.0
    for value in values:
        if value is None:
            out.append(None)
            continue
        mean, seen = weight * mean + (1 - weight) * value, weight * seen + (1 - weight)
        out.append(mean / seen)
    return out
