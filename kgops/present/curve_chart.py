"""Pictures of a page as SVG: curves of runs, charts and graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal
from xml.sax.saxutils import escape

from kgops.jobs.numbers import middle
from kgops.jobs.text import one_line
from kgops.present.axes import FROM_ZERO, Axis, is_by_clock
from kgops.present.html_page import HUES, chart
from kgops.present.run_detail import Curve
from storage.runs import Run
from storage.series import Bucket

Point = tuple[float, float]
Tone = Literal["ink", "paper", "dim", "grid"]  # classes of the page


@dataclass(frozen=True)
class Line:
    """A line through all points; `dash` alternates lengths of dashes and gaps. Its hue is a number of the page's
    colours."""

    points: Sequence[Point]
    tone: Tone = "ink"
    width: float = 1.0
    dash: tuple[float, ...] = ()
    hue: int | None = None


@dataclass(frozen=True)
class Shape:
    """A closed polygon with a black outline, or a faint area without one."""

    points: Sequence[Point]
    fill: Tone
    hue: int | None = None
    faint: bool = False


@dataclass(frozen=True)
class Text:
    """`at` is the start, middle or end of its baseline, by `anchor`."""

    at: Point
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    size: int = 12
    bold: bool = False


@dataclass
class Picture:
    width: int
    height: int
    title: str
    parts: list[Line | Shape | Text] = field(default_factory=list)


def rounded_box(left: float, top: float, right: float, bottom: float, radius: float = 8) -> list[Point]:
    """The outline of a box with rounded corners."""
    centres = (
        *((right - radius, bottom - radius), (left + radius, bottom - radius)),
        *((left + radius, top + radius), (right - radius, top + radius)),
    )
    angles = [[(quarter + i / 4) * math.pi / 2 for i in range(5)] for quarter in range(4)]
    return [
        (x + radius * math.cos(angle), y + radius * math.sin(angle))
        for (x, y), quarter in zip(centres, angles, strict=True)
        for angle in quarter
    ]


def arrowhead(before: Point, tip: Point, size: float, hue: int | None = None) -> Shape:
    """A triangle at the end of a line from `before` to `tip`."""
    length = math.hypot(tip[0] - before[0], tip[1] - before[1]) or 1.0
    dx, dy = (tip[0] - before[0]) / length, (tip[1] - before[1]) / length
    x, y, half = tip[0] - size * dx, tip[1] - size * dy, size / 2
    return Shape([tip, (x - half * dy, y + half * dx), (x + half * dy, y - half * dx)], "ink", hue)


def as_inline_svg(picture: Picture) -> str:
    """For an HTML page, which has the colours: each part names its own by a class, so that a page may be dark."""
    body = "".join(_inline(part) for part in picture.parts)
    label = _safe(picture.title).replace("'", "&#39;")
    return f"<svg viewBox='0 0 {picture.width} {picture.height}' role='img' aria-label='{label}'>{body}</svg>"


def _inline(part: Line | Shape | Text) -> str:
    if isinstance(part, Text):
        return _text_element(part)
    tone = part.fill if isinstance(part, Shape) else part.tone
    paint = f"class='{tone if part.hue is None else f'hue{part.hue}'}'"
    if isinstance(part, Line):
        dash = f" stroke-dasharray='{' '.join(f'{one:g}' for one in part.dash)}'" if part.dash else ""
        stroke = f"stroke='currentColor' stroke-width='{part.width:g}'{dash}"
        return f"<path d='{_path(part)}' fill='none' {paint} {stroke}/>"
    edge = "fill-opacity='.18'" if part.faint else "stroke='currentColor'"
    return f"<path {paint} d='{_path(part)}Z' fill='currentColor' {edge}/>"


def _text_element(part: Text) -> str:
    x, y = part.at
    weight = " font-weight='bold'" if part.bold else ""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{part.anchor}' font-size='{part.size}'{weight}"
        f" class='dim' fill='currentColor'>{_safe(part.text)}</text>"
    )


def _path(part: Line | Shape) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in part.points)


def _safe(text: str) -> str:
    """Text escaped for XML, without characters that XML cannot represent."""
    return escape("".join(c if c.isprintable() else "\ufffd" for c in text))


_WIDTH, _HEIGHT = 440, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 10, 8, 24
_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 3), (2, 2), (8, 3, 2, 3))
_DOT = 2.0

_Part = Line | Shape | Text


@dataclass(frozen=True)
class Trace:
    """The curve of one run. `number` gives its colour and dash."""

    curve: Curve
    run: Run
    number: int = 0
    finite: tuple[Bucket, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "finite", tuple(b for b in self.curve.buckets if b.mean is not None))


def draw(curve: Curve, run: Run, estimate: float | None = None) -> str:
    """The mean of each bucket with a band from its minimum to its maximum; a gap at NaN and infinity; the estimate as
    a dashed line."""
    trace = Trace(curve, run)
    if not trace.finite:
        return ""
    low, high = _range([trace])
    caption = f"last {short(curve.last)}, {short(low)} to {short(high)}, {curve.n:,} points"
    caption += f"; dashed: estimate {short(estimate)}" if estimate is not None else ""
    return chart(curve.name, caption, as_inline_svg(_picture([trace], estimate, bands=True)))


def draw_together(name: str, traces: Sequence[Trace]) -> str:
    """The curves of several runs in one chart; empty where none has a number."""
    shown = [trace for trace in traces if trace.finite]
    if not shown:
        return ""
    ends = ", ".join(short(trace.curve.last) for trace in shown)
    return chart(name, f"last {ends}", as_inline_svg(_picture(shown, None, bands=False)))


def short(value: float | None) -> str:
    """Five significant digits, thousands grouped."""
    if value is None:
        return "n/a"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.5g}"


def _picture(traces: Sequence[Trace], estimate: float | None, *, bands: bool) -> Picture:
    name = one_line(traces[0].curve.name)
    by_clock = all(is_by_clock(trace.curve.buckets, trace.run) for trace in traces)
    ends = [(_zero(t, by_clock), t.finite[0].first_step, t.finite[-1].last_step) for t in traces]
    unit, scale = _unit(max(last - zero for zero, _, last in ends)) if by_clock else ("", 1.0)
    first = min((start - zero) / scale for zero, start, _ in ends)
    last = max((end - zero) / scale for zero, _, end in ends)
    whole = not unit and not first % 1 and not last % 1
    x = Axis.around(first, last, _LEFT, _WIDTH - _RIGHT, at_most=6, least=1.0 if whole else 0.0)
    low, high = _range(traces)
    low = min(low, 0.0) if name.endswith(FROM_ZERO) else low
    high = high if estimate is None else max(high, estimate)
    y = Axis.around(low, high, _HEIGHT - _BOTTOM, _TOP, at_most=4, outside=True)
    picture = Picture(_WIDTH, _HEIGHT, name)
    picture.parts += _grid(x, y, unit)
    if estimate is not None:
        level = y(estimate)
        picture.parts.append(Line([(_LEFT, level), (_WIDTH - _RIGHT, level)], "dim", dash=(5, 4)))
    for trace, (zero, _, _) in zip(traces, ends, strict=True):
        picture.parts += _curve(trace, _place(x, zero, scale), y, bands)
    return picture


def _zero(trace: Trace, by_clock: bool) -> float:
    run = trace.run
    began = run.submitted_at if run.started_at is None else run.started_at
    return began if by_clock else 0.0


def _place(x: Axis, zero: float, scale: float) -> Callable[[Bucket], float]:
    return lambda bucket: x((middle(bucket.first_step, bucket.last_step) - zero) / scale)


def _range(traces: Sequence[Trace]) -> tuple[float, float]:
    lows = [b.min for trace in traces for b in trace.finite if b.min is not None]
    highs = [b.max for trace in traces for b in trace.finite if b.max is not None]
    return min(lows), max(highs)


def _unit(span_s: float) -> tuple[str, float]:
    return next(((name, s) for name, s in _UNITS if span_s >= 2 * s), _UNITS[-1])


def _curve(trace: Trace, at: Callable[[Bucket], float], y: Axis, bands: bool) -> Iterator[_Part]:
    hue = trace.number % HUES
    for is_number, group in groupby(trace.curve.buckets, key=lambda b: b.mean is not None):
        if not is_number:
            continue
        run = list(group)
        if bands and any(b.min != b.max for b in run):
            edge = [(at(b), y(b.max or 0.0)) for b in run]
            edge += [(at(b), y(b.min or 0.0)) for b in reversed(run)]
            yield Shape(edge, "grid", hue, faint=True)
        if len(run) == 1:
            yield _dot(at(run[0]), y(run[0].mean or 0.0), hue)
        else:
            points = [(at(b), y(b.mean or 0.0)) for b in run]
            yield Line(points, width=1.6, dash=DASHES[trace.number % len(DASHES)], hue=hue)


def _dot(x: float, y: float, hue: int) -> Shape:
    return Shape([(x + a, y + b) for a, b in ((-_DOT, 0), (0, -_DOT), (_DOT, 0), (0, _DOT))], "ink", hue)


def _grid(x: Axis, y: Axis, unit: str) -> Iterator[_Part]:
    foot = _HEIGHT - _BOTTOM
    for value, label in y.ticks():
        at = y(value)
        yield Line([(_LEFT, at), (_WIDTH - _RIGHT, at)], "grid")
        yield Text((_LEFT - 5, at + 3), label, "end", size=10)
    yield Line([(_LEFT, foot), (_WIDTH - _RIGHT, foot)], "dim")
    ticks = x.ticks()
    for value, label in ticks:
        at = x(value)
        yield Line([(at, foot), (at, foot + 3)], "dim")
        last = f" {unit}" if unit and value == ticks[-1][0] else ""
        yield Text((at, foot + 15), label + last, "middle", size=10)
