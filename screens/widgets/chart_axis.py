"""The horizontal axis of a chart: which step each column shows, and its line of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgops.jobs.numbers import line_between, mean, middle, share_between
from kgops.present.axes import counts_epochs, is_by_clock
from kgops.present.formats import duration
from kgops.present.rows import Piece

if TYPE_CHECKING:
    from kgops.present.run_detail import Curve
    from storage.runs import Run

Point = tuple[float, float | None]  # step and value; None: not a number


class XAxis:
    """Steps, epochs, or time since the run's start."""

    def __init__(self, curve: Curve, run: Run) -> None:
        buckets = curve.buckets
        self._first = min((bucket.first_step for bucket in buckets), default=0.0)
        self._last = max((bucket.last_step for bucket in buckets), default=0.0)
        self._points = [(middle(one.first_step, one.last_step), one.mean) for one in buckets]
        self._is_time = is_by_clock(buckets, run)
        self._zero = run.started_at or run.submitted_at
        self._unit = "" if self._is_time else "epoch " if counts_epochs(run) else "step "

    def values(self, count: int) -> list[float | None]:
        """One value for each of `count` columns: means where there are more points, lines between fewer."""
        columns: dict[int, list[float | None]] = {}
        for step, value in self._points:
            column = round(share_between(step, self._first, self._last) * (count - 1))
            columns.setdefault(column, []).append(value)
        means: list[Point] = []
        for column, values in columns.items():
            known = [value for value in values if value is not None]
            means.append((float(column), mean(known) if known else None))
        return on_axis(means, 0.0, float(count - 1), count)

    def labels(self, indent: int, width: int) -> list[Piece]:
        """The first and last step below the chart, and the middle where there is room."""
        left, right = self._named(self._first), self._unit + self._named(self._last)
        if self._first >= self._last:
            return [Piece(f"{'':{indent}}{right:>{width}}", "dim")]
        centre = self._named(middle(self._first, self._last))
        gap = width - len(left) - len(right)
        inner = f"{centre:^{gap}}" if gap >= len(centre) + 8 else " " * max(gap, 1)
        return [Piece(f"{'':{indent}}{left}{inner}{right}", "dim")]

    def _named(self, step: float) -> str:
        if self._is_time:
            return duration(step - self._zero)
        return f"{step:,.0f}" if step >= 10 else f"{step:.4g}"


def on_axis(points: Sequence[Point], low: float, high: float, count: int) -> list[float | None]:
    """Resamples a curve to `count` points between two steps by linear interpolation."""
    out: list[float | None] = [None] * count
    before: tuple[int, float] | None = None
    for step, value in points:
        at = round(share_between(step, low, high) * (count - 1))
        if value is None:
            before = None
            continue
        if before is not None and at - before[0] > 1:
            for x in range(before[0] + 1, at):
                out[x] = line_between(before[1], value, (x - before[0]) / (at - before[0]))
        out[at] = value
        before = at, value
    return out
