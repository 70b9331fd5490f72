"""Charts of a benchmark as SVG, drawn here: marks differ in shape and lines in dashes, so that print without colour
tells them apart as well."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from kgops.measured.pairs import Spread
from kgops.measured.sizes import Curve
from kgops.measured.summary import Row

__all__ = ["Dot", "cost_against_size", "front", "speed_against_memory"]

HEIGHT = 460
LEFT, RIGHT, TOP, BOTTOM = 78, 500, 48, 400
FONT = "font-family='Helvetica, Arial, sans-serif'"
DASHES = ("", "7 4", "2 3", "9 3 2 3", "4 2", "12 4")
LONGEST = 60  # of a name in the legend, of which a letter takes some seven units


@dataclass(frozen=True)
class Dot:
    """A variant: where it lies, its quartiles, and what the legend calls it."""

    name: str
    x: Spread
    y: Spread


def speed_against_memory(title: str, rows: Sequence[Row]) -> str | None:
    """Every variant by time and memory, and the front of those that none beats in both; None: no memory is known."""
    dots = [Dot(row.variant, row.memory_mib, row.seconds) for row in rows if row.memory_mib and row.seconds]
    if not dots:
        return None
    of = next(row for row in rows if row.seconds)
    x = _Axis.over(
        [v for d in dots for v in (d.x.low, d.x.high)], LEFT, RIGHT, f"memory, MiB ({of.memory_of})"
    )
    y = _Axis.over([v for d in dots for v in (d.y.low, d.y.high)], BOTTOM, TOP, f"seconds ({of.seconds_of})")
    best = front(dots)
    parts = [_staircase(best, x, y)]
    legend = []
    for i, dot in enumerate(dots):
        at = (x(dot.x.median), y(dot.y.median))
        parts += [
            _whisker(x(dot.x.low), at[1], x(dot.x.high), at[1]),
            _whisker(at[0], y(dot.y.low), at[0], y(dot.y.high)),
        ]
        filled = dot in best
        parts.append(_mark(i, *at, filled))
        legend.append((_mark(i, 0, 0, filled), dot.name))
    note = (
        "filled, dashed line: nothing is both faster and smaller; whiskers: quartiles; lower left is better"
    )
    return _page(title, note, x, y, parts, legend)


def front(dots: Sequence[Dot]) -> list[Dot]:
    """Those that no other beats in one without losing in the other, by memory."""
    found: list[Dot] = []
    for dot in sorted(dots, key=lambda d: (d.x.median, d.y.median)):
        if not found or dot.y.median < found[-1].y.median:
            found.append(dot)
    return found


def cost_against_size(title: str, what: str, unit: str, curves: Sequence[Curve]) -> str | None:
    """A line for each curve, both axes logarithmic where all is above zero; None where there is nothing to draw."""
    values = [v for c in curves for _, s in c.points for v in (s.low, s.high)]
    sizes = [size for c in curves for size, _ in c.points]
    if len(set(sizes)) < 2:
        return None
    marked = tuple(sorted(set(sizes)))
    x = _Axis.over(sizes, LEFT, RIGHT, what, marked if len(marked) <= 8 else ())
    y = _Axis.over(values, BOTTOM, TOP, unit)
    parts, legend = [], []
    for i, curve in enumerate(curves):
        places = [(x(size), y(s.median)) for size, s in sorted(curve.points, key=lambda p: p[0])]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        dash = DASHES[i % len(DASHES)]
        parts.append(f"<polyline points='{line}' fill='none' stroke='black' stroke-dasharray='{dash}'/>")
        for size, s in curve.points:
            parts.append(_whisker(x(size), y(s.low), x(size), y(s.high)))
        parts += [_mark(i, *at, filled=i % 2 == 0) for at in places]
        legend.append((_mark(i, 0, 0, filled=i % 2 == 0), curve.name))
    return _page(title, "medians; whiskers: quartiles", x, y, parts, legend)


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float
    title: str
    logarithmic: bool
    marked: tuple[float, ...] = ()  # these and no others

    @classmethod
    def over(
        cls, values: Sequence[float], start: float, end: float, title: str, marked: tuple[float, ...] = ()
    ) -> _Axis:
        low, high = min(values), max(values)
        if low > 0 and high / low >= 4:
            return cls(low / 1.15, high * 1.15, start, end, title, True, marked)
        room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
        low = low - room if low - room > 0 or low < 0 else 0.0
        return cls(low, high + room, start, end, title, False, marked)

    def __call__(self, value: float) -> float:
        f: Callable[[float], float] = math.log if self.logarithmic else float
        share = (f(value) - f(self.low)) / (f(self.high) - f(self.low))
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.marked:
            return list(self.marked)
        if self.logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            found = [m * 10.0**d for d in decades for m in (1, 2, 5) if self.low <= m * 10.0**d <= self.high]
            whole = [t for t in found if math.log10(t).is_integer()]
            return whole if len(found) > 9 and len(whole) > 1 else found
        raw = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
        first = math.ceil(self.low / step)
        return [i * step for i in range(first, math.floor(self.high / step) + 1)]


def _page(
    title: str, note: str, x: _Axis, y: _Axis, parts: Sequence[str], legend: Sequence[tuple[str, str]]
) -> str:
    height = max(HEIGHT, TOP + 20 * len(legend) + 20)
    width = RIGHT + 50 + 7 * min(LONGEST, max(24, *(len(name) for _, name in legend), len(title) - 60))
    out = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}'>",
        f"<title>{_safe(title)}</title><rect width='100%' height='100%' fill='white'/>",
        f"<text x='{LEFT}' y='22' font-size='14' font-weight='bold' {FONT}>{_safe(_cut(title, 90))}</text>",
        f"<rect x='{LEFT}' y='{TOP}' width='{RIGHT - LEFT}' height='{BOTTOM - TOP}' fill='none' stroke='black'/>",
        *_ticks(x, y),
        _text((LEFT + RIGHT) / 2, BOTTOM + 36, x.title + (" (log)" if x.logarithmic else ""), "middle"),
        f"<g transform='translate(18 {(TOP + BOTTOM) / 2}) rotate(-90)'>"
        + _text(0, 0, y.title + (" (log)" if y.logarithmic else ""), "middle")
        + "</g>",
        *parts,
    ]
    for i, (mark, name) in enumerate(legend):
        at = TOP + 10 + 20 * i
        out.append(f"<g transform='translate({RIGHT + 20} {at})'>{mark}</g>")
        out.append(_text(RIGHT + 34, at + 4, _cut(name, LONGEST), "start"))
    out.append(_text(LEFT, BOTTOM + 54, note, "start", size=10))
    return "\n".join(out) + "\n</svg>\n"


def _ticks(x: _Axis, y: _Axis) -> list[str]:
    out = []
    for value in x.ticks():
        at = x(value)
        out.append(
            f"<path d='M{at:.1f} {TOP}V{BOTTOM}' stroke='#ddd'/><path d='M{at:.1f} {BOTTOM}v5' stroke='black'/>"
        )
        out.append(_text(at, BOTTOM + 18, _number(value), "middle"))
    for value in y.ticks():
        at = y(value)
        out.append(
            f"<path d='M{LEFT} {at:.1f}H{RIGHT}' stroke='#ddd'/><path d='M{LEFT} {at:.1f}h-5' stroke='black'/>"
        )
        out.append(_text(LEFT - 8, at + 4, _number(value), "end"))
    return out


def _staircase(best: Sequence[Dot], x: _Axis, y: _Axis) -> str:
    steps = [f"M{x(best[0].x.median):.1f} {TOP}V{y(best[0].y.median):.1f}"]
    for dot in best[1:]:
        steps.append(f"H{x(dot.x.median):.1f}V{y(dot.y.median):.1f}")
    return f"<path d='{''.join(steps)}H{RIGHT}' fill='none' stroke='#555' stroke-dasharray='5 4'/>"


def _whisker(x1: float, y1: float, x2: float, y2: float) -> str:
    return f"<path d='M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}' stroke='black' stroke-width='0.8'/>"


# Outlines of marks around 0, 0: circle, square, triangle, diamond, triangle down, cross, star, hexagon.
_SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z",
    "M-4.5 -4.5h9v9h-9Z",
    "M0 -5.5L5.5 4.5H-5.5Z",
    "M0 -6L6 0L0 6L-6 0Z",
    "M0 5.5L5.5 -4.5H-5.5Z",
    "M-2 -6h4v4h4v4h-4v4h-4v-4h-4v-4h4Z",
    "M0 -6L1.8 -1.8L6 0L1.8 1.8L0 6L-1.8 1.8L-6 0L-1.8 -1.8Z",
    "M-3 -5.2H3L6 0L3 5.2H-3L-6 0Z",
)


def _mark(number: int, x: float, y: float, filled: bool) -> str:
    """Shapes repeat after eight; then a number stands beside them."""
    shape = _SHAPES[number % len(_SHAPES)]
    again = number // len(_SHAPES)
    beside = f"<text x='7' y='-3' font-size='9' {FONT}>{again + 1}</text>" if again else ""
    fill = "black" if filled else "white"
    return f"<g transform='translate({x:.1f} {y:.1f})'><path d='{shape}' fill='{fill}' stroke='black'/>{beside}</g>"


def _text(x: float, y: float, text: str, anchor: str, size: int = 12) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-size='{size}' {FONT}>{_safe(text)}</text>"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _safe(text: str) -> str:
    """As XML has it: without the characters it knows no way to write."""
    return escape("".join(c if c.isprintable() else "\ufffd" for c in text))
