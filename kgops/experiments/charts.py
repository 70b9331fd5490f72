"""Charts of a benchmark: bars of variants, and curves over a varied number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kgops.experiments.summary import Row
from kgops.experiments.trial_result import Spread
from kgops.present.axes import Axis
from kgops.present.pictures import Line, Picture, Point, Shape, Text, mark


@dataclass(frozen=True)
class Curve:
    name: str
    points: tuple[tuple[float, Spread], ...]


def curves_by_size(rows: Sequence[Row], plan: Mapping[str, Any]) -> dict[str, list[Curve]]:
    """Curves of seconds for each varied name; empty if its values are not numbers."""
    varied = {one["name"]: one.get("varied") or {} for one in plan["variants"]}
    axes = dict.fromkeys(name for setting in varied.values() for name in setting)
    return {axis: list(_curves(axis, rows, varied)) for axis in axes}


def _curves(axis: str, rows: Sequence[Row], varied: Mapping[str, Mapping[str, Any]]) -> Iterator[Curve]:
    """One curve over the axis for each combination of the other varied options."""
    groups: dict[str, list[tuple[float, Spread]]] = {}
    for row in rows:
        setting = varied.get(row.variant, {})
        size = setting.get(axis)
        if row.seconds is None or isinstance(size, bool) or not isinstance(size, (int, float)):
            continue
        rest = " ".join(f"{name}={_word(value)}" for name, value in setting.items() if name != axis)
        groups.setdefault(rest or "time", []).append((float(size), row.seconds))
    for name, points in groups.items():
        if len(points) > 1:
            yield Curve(name, tuple(points))


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


HEIGHT = 460
LEFT, RIGHT, TOP, BOTTOM = 78, 500, 48, 400
DASHES: tuple[tuple[float, ...], ...] = ((), (7, 4), (2, 3), (9, 3, 2, 3), (4, 2), (12, 4))
LONGEST = 60  # letters of a name in the legend; a letter takes about 7 units
CAP = 2.5  # half the width of the bar at the end of a whisker
REACH = 7  # radius of a mark; shorter whiskers are not drawn
BESIDE = 9  # offset between two curves at one size, so that their whiskers do not overlap

Part = Line | Shape | Text


@dataclass(frozen=True)
class Dot:
    """A variant in the chart: legend name, and median and quartiles on both axes."""

    name: str
    x: Spread
    y: Spread


def speed_against_memory(title: str, rows: Sequence[Row]) -> Picture | None:
    """Every variant by time and memory, with the Pareto front; None if no memory was measured."""
    dots = [Dot(row.variant, row.memory_mib, row.seconds) for row in rows if row.memory_mib and row.seconds]
    if not dots:
        return None
    of = next(row for row in rows if row.seconds)
    memory, seconds = ([v for s in some for v in (s.low, s.high)] for some in _columns(dots))
    x = Axis.over(memory, LEFT, RIGHT, f"memory, MiB ({of.memory_of})")
    y = Axis.over(seconds, BOTTOM, TOP, f"seconds ({of.seconds_of})")
    best = front(dots)
    parts: list[Part] = [_staircase(best, x, y)]
    legend = []
    for i, dot in enumerate(dots):
        at = x(dot.x.median), y(dot.y.median)
        parts += _whiskers(at, *((x(value), at[1]) for value in (dot.x.low, dot.x.high)))
        parts += _whiskers(at, *((at[0], y(value)) for value in (dot.y.low, dot.y.high)))
        parts += mark(i, at, filled=dot in best)
        legend.append((dot.name, dot in best))
    note = "filled marks, dashed line: Pareto front; whiskers: quartiles; lower left is better"
    return _page(title, note, x, y, parts, legend)


def front(dots: Sequence[Dot]) -> list[Dot]:
    """The Pareto front of time and memory, in the order of memory."""
    best: list[Dot] = []
    for dot in sorted(dots, key=lambda d: (d.x.median, d.y.median)):
        if not best or dot.y.median < best[-1].y.median:
            best.append(dot)
    return best


def cost_against_size(title: str, what: str, unit: str, curves: Sequence[Curve]) -> Picture | None:
    """One line for each curve; None if there are fewer than two sizes."""
    values = [v for c in curves for _, s in c.points for v in (s.low, s.high)]
    sizes = [size for c in curves for size, _ in c.points]
    if len(set(sizes)) < 2:
        return None
    marked = tuple(sorted(set(sizes)))
    x = Axis.over(sizes, LEFT + 20, RIGHT - 20, what, marked if len(marked) <= 8 else ())
    y = Axis.over(values, BOTTOM, TOP, unit)
    parts: list[Part] = []
    marks: list[Part] = []
    for i, curve in enumerate(curves):
        aside = BESIDE * (i - (len(curves) - 1) / 2) if len(curves) <= 4 else 0.0
        points = sorted(curve.points, key=lambda p: p[0])
        centres = [(x(size) + aside, y(s.median)) for size, s in points]
        parts.append(Line(centres, dash=DASHES[i % len(DASHES)]))
        for at, (_, s) in zip(centres, points, strict=True):
            parts += _whiskers(at, (at[0], y(s.low)), (at[0], y(s.high)))
        marks += [part for at in centres for part in mark(i, at, filled=i % 2 == 0)]
    apart = "; curves are offset sideways at each size" if 1 < len(curves) <= 4 else ""
    legend = [(curve.name, i % 2 == 0) for i, curve in enumerate(curves)]
    return _page(title, f"medians; whiskers: quartiles{apart}", x, y, [*parts, *marks], legend)


def _page(
    title: str, note: str, x: Axis, y: Axis, parts: Sequence[Part], legend: Sequence[tuple[str, bool]]
) -> Picture:
    height = max(HEIGHT, TOP + 20 * len(legend) + 20)
    width = RIGHT + 50 + 7 * min(LONGEST, max(24, *(len(name) for name, _ in legend), len(title) - 60))
    frame = [(LEFT, TOP), (RIGHT, TOP), (RIGHT, BOTTOM), (LEFT, BOTTOM), (LEFT, TOP), (RIGHT, TOP)]
    middle = (LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2
    picture = Picture(width, height, title)
    picture.parts += [
        Text((LEFT, 22), _cut(title, 90), size=14, bold=True),
        *_ticks(x, y),
        Line(frame),
        Text((middle[0], BOTTOM + 36), x.title, "middle"),
        Text((18, middle[1]), y.title, "middle", upwards=True),
        *parts,
    ]
    for i, (name, filled) in enumerate(legend):
        at = TOP + 10 + 20 * i
        picture.parts += [
            *mark(i, (RIGHT + 20, at), filled=filled),
            Text((RIGHT + 34, at + 4), _cut(name, LONGEST)),
        ]
    picture.parts.append(Text((LEFT, BOTTOM + 54), note, size=10))
    return picture


def _ticks(x: Axis, y: Axis) -> list[Part]:
    out: list[Part] = []
    for value, name in x.ticks():
        at = x(value)
        out += [Line([(at, TOP), (at, BOTTOM)], "#ddd"), Line([(at, BOTTOM), (at, BOTTOM + 5)])]
        out.append(Text((at, BOTTOM + 18), name, "middle"))
    for value, name in y.ticks():
        at = y(value)
        out += [Line([(LEFT, at), (RIGHT, at)], "#ddd"), Line([(LEFT - 5, at), (LEFT, at)])]
        out.append(Text((LEFT - 8, at + 4), name, "end"))
    return out


def _staircase(best: Sequence[Dot], x: Axis, y: Axis) -> Line:
    at = [(x(dot.x.median), y(dot.y.median)) for dot in best]
    points: list[Point] = [(at[0][0], TOP), at[0]]
    for before, after in pairwise(at):
        points += [(after[0], before[1]), after]
    return Line([*points, (RIGHT, at[-1][1])], "#555", dash=(5, 4))


def _whiskers(at: Point, *ends: Point) -> list[Part]:
    """Lines from a mark to each end that lies outside it, with a bar across."""
    out: list[Part] = []
    for x, y in ends:
        if max(abs(x - at[0]), abs(y - at[1])) > REACH:
            a, b = (CAP, 0.0) if x == at[0] else (0.0, CAP)
            out += [Line([at, (x, y)], width=0.8), Line([(x - a, y - b), (x + a, y + b)], width=0.8)]
    return out


def _columns(dots: Sequence[Dot]) -> tuple[list[Spread], list[Spread]]:
    return [dot.x for dot in dots], [dot.y for dot in dots]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
