"""Curves and influences of a report."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from kgops.jobs.numbers import middle, share_between
from kgops.jobs.text import one_line
from kgops.views.influences import RunInfluences
from kgops.views.run_detail import Curve
from storage.influences import Influence, TestTriple
from storage.series import Bucket

__all__ = [
    "Clock",
    "draw",
    "short",
    "traces",
]

_MOST_TESTS = 20
_MOST_EACH = 5  # proponents, and as many opponents


def traces(influences: RunInfluences) -> str:
    """HTML of the test triples; empty where there are none."""
    shown = [_test(influences, test) for test in influences.tests[:_MOST_TESTS]]
    left = len(influences.tests) - len(shown)
    more = f'<p class="dim">and {left:,} more: kgops influences {influences.run.id}</p>' if left > 0 else ""
    return "\n".join([*shown, more]) if shown else ""


def _test(influences: RunInfluences, test: TestTriple) -> str:
    candidates = f", {test.candidates:,} training triples compared" if test.candidates is not None else ""
    head = f"test {test.test} · {_triple(influences, test.head, test.relation, test.tail)}{candidates}"
    if test.trouble is not None:
        return f"<p>{_text(head)}: <strong>{_text(test.trouble)}</strong></p>"
    rows = "".join(_row(influences, one) for one in _strongest(influences.by_test.get(test.test, ())))
    heads = '<th class="n">score</th><th>head</th><th>relation</th><th>tail</th>'
    return f"<p>{_text(head)}</p>\n<table><tr>{heads}</tr>{rows}</table>" if rows else f"<p>{_text(head)}</p>"


def _strongest(influences: tuple[Influence, ...]) -> list[Influence]:
    return [one for one in influences if abs(one.rank) <= _MOST_EACH]


def _row(influences: RunInfluences, one: Influence) -> str:
    cells = "".join(
        f"<td>{_text(influences.name_of(label))}</td>" for label in (one.head, one.relation, one.tail)
    )
    return f'<tr><td class="n">{one.score:+.4g}</td>{cells}</tr>'


def _triple(influences: RunInfluences, *labels: str) -> str:
    return " · ".join(influences.name_of(label) for label in labels)


def _text(text: str) -> str:
    return html.escape(one_line(text))


_WIDTH, _HEIGHT = 440, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 10, 8, 24
_DAY_S = 86400.0
_DIGITS = 1e12  # a step that many times smaller than a value is lost in it
_UNITS = (("d", _DAY_S), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


class Clock:
    """Distinguishes curves over time from curves over steps: their steps are timestamps within the run."""

    def __init__(self, submitted_at: float, started_at: float | None, until: float) -> None:
        self.zero = submitted_at if started_at is None else started_at
        self._first, self._last = submitted_at - _DAY_S, until + _DAY_S

    def is_moment(self, curve: Curve) -> bool:
        ends = (curve.buckets[0].first_step, curve.buckets[-1].last_step)
        return all(self._first <= end <= self._last for end in ends)


def draw(curve: Curve, clock: Clock) -> str:
    """The mean of each bucket with a band from its minimum to its maximum; a gap at NaN and infinity."""
    finite = [b for b in curve.buckets if b.mean is not None]
    if not finite:
        return ""
    shift, scale, unit = _time_axis(finite, clock) if clock.is_moment(curve) else (0.0, 1.0, "")
    first, last = (finite[0].first_step - shift) / scale, (finite[-1].last_step - shift) / scale
    x_ticks = _ticks(first, last, 6, least=0.0 if unit or first % 1 or last % 1 else 1.0)
    low = min(b.min for b in finite if b.min is not None)
    high = max(b.max for b in finite if b.max is not None)
    y_ticks = _ticks(low, high, 4, around=True)
    x = _axis(first, last, _LEFT, _WIDTH - _RIGHT)
    y = _axis(min(low, *y_ticks), max(high, *y_ticks), _HEIGHT - _BOTTOM, _TOP)

    def at(bucket: Bucket) -> float:
        return x((middle(bucket.first_step, bucket.last_step) - shift) / scale)

    parts = [*_grid(x_ticks, y_ticks, x, y, unit), *_lines(curve.buckets, at, y)]
    caption = f"{curve.name}: {short(low)} to {short(high)}, last {short(curve.last)}, {curve.n:,} points"
    name = _text(curve.name)
    return (
        f"<figure><figcaption>{_text(caption)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{name}">{"".join(parts)}</svg></figure>'
    )


def short(value: float | None) -> str:
    """Five significant digits, thousands grouped."""
    if value is None:
        return "n/a"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.5g}"


def _lines(
    buckets: Sequence[Bucket], at: Callable[[Bucket], float], y: Callable[[float], float]
) -> Iterator[str]:
    for is_number, group in groupby(buckets, key=lambda b: b.mean is not None):
        if not is_number:
            continue
        run = list(group)
        if any(b.min != b.max for b in run):
            edge = [f"{at(b):.1f},{y(b.max or 0.0):.1f}" for b in run]
            edge += [f"{at(b):.1f},{y(b.min or 0.0):.1f}" for b in reversed(run)]
            yield f'<polygon points="{" ".join(edge)}" fill="#ddd"/>'
        if len(run) == 1:
            yield f'<circle cx="{at(run[0]):.1f}" cy="{y(run[0].mean or 0.0):.1f}" r="1.8" fill="#111"/>'
        else:
            line = " ".join(f"{at(b):.1f},{y(b.mean or 0.0):.1f}" for b in run)
            yield f'<polyline points="{line}" fill="none" stroke="#111" stroke-width="1.4"/>'


def _grid(
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    x: Callable[[float], float],
    y: Callable[[float], float],
    unit: str,
) -> Iterator[str]:
    foot = _HEIGHT - _BOTTOM
    for value in y_ticks:
        where = f"{y(value):.1f}"
        yield f'<line x1="{_LEFT}" y1="{where}" x2="{_WIDTH - _RIGHT}" y2="{where}" stroke="#e4e4e4"/>'
        yield f'<text x="{_LEFT - 5}" y="{where}" dy="3" text-anchor="end">{short(value)}</text>'
    yield f'<line x1="{_LEFT}" y1="{foot}" x2="{_WIDTH - _RIGHT}" y2="{foot}" stroke="#888"/>'
    for value in x_ticks:
        where = f"{x(value):.1f}"
        yield f'<line x1="{where}" y1="{foot}" x2="{where}" y2="{foot + 3}" stroke="#888"/>'
        last = f" {unit}" if unit and value == x_ticks[-1] else ""
        yield f'<text x="{where}" y="{foot + 14}" text-anchor="middle">{short(value)}{last}</text>'


def _time_axis(buckets: Sequence[Bucket], clock: Clock) -> tuple[float, float, str]:
    """Shift, scale and unit of an axis of time since the start."""
    span = buckets[-1].last_step - clock.zero
    unit, scale = next(((name, s) for name, s in _UNITS if span >= 2 * s), _UNITS[-1])
    return clock.zero, scale, unit


def _axis(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """The map from values to positions in the picture; a single value is centred."""
    if not low < high:
        return lambda _: (start + end) / 2
    return lambda value: start + (end - start) * share_between(value, low, high)


def _ticks(low: float, high: float, at_most: int, *, least: float = 0.0, around: bool = False) -> list[float]:
    """About `at_most` round values, at least `least` apart, within the range or `around` it; else both ends."""
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [low, high]
    step = _round_step(max(span / at_most, least))
    if step is None or max(abs(low), abs(high)) / step > _DIGITS:
        return [low, high]
    outside = (math.floor(low / step), math.ceil(high / step))
    first, last = outside if around else (math.ceil(low / step), math.floor(high / step))
    ticks = [tick for n in range(first, last + 1) if math.isfinite(tick := n * step)]
    return ticks if len(ticks) > 1 else [low, high]


def _round_step(rough: float) -> float | None:
    """The smallest 1, 2 or 5 times a power of ten that is not below `rough`; None where floats overflow."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 0.0
    steps = (power * factor for factor in (1, 2, 5, 10))
    return next((step for step in steps if math.isfinite(step) and step >= rough > 0), None)
