"""Black-and-white pictures of lines, shapes and text, written as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.sax.saxutils import escape

__all__ = ["Line", "Picture", "Point", "Shape", "Text", "as_svg", "mark"]

Point = tuple[float, float]
Tone = Literal["black", "white", "#555", "#ddd"]
FONT = "font-family='Helvetica, Arial, sans-serif'"


@dataclass(frozen=True)
class Line:
    """A line through all points; `dash` alternates lengths of dashes and gaps."""

    points: Sequence[Point]
    tone: Tone = "black"
    width: float = 1.0
    dash: tuple[float, ...] = ()


@dataclass(frozen=True)
class Shape:
    """A closed polygon with a black outline."""

    points: Sequence[Point]
    fill: Tone


@dataclass(frozen=True)
class Text:
    """`at` is the start, middle or end of its baseline, by `anchor`."""

    at: Point
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    size: int = 12
    bold: bool = False
    upwards: bool = False


@dataclass
class Picture:
    width: int
    height: int
    title: str
    parts: list[Line | Shape | Text] = field(default_factory=list)


def mark(number: int, at: Point, *, filled: bool) -> list[Line | Shape | Text]:
    """Mark of the variant or curve with this number; shapes repeat after eight, with a number beside them."""
    x, y = at
    shape = Shape([(x + a, y + b) for a, b in _SHAPES[number % len(_SHAPES)]], "black" if filled else "white")
    again = number // len(_SHAPES)
    return [shape, *([Text((x + 7, y - 3), str(again + 1), size=9)] if again else [])]


def as_svg(picture: Picture) -> str:
    size = f"{picture.width} {picture.height}"
    out = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{picture.width}' height='{picture.height}' "
        f"viewBox='0 0 {size}'>",
        f"<title>{_safe(picture.title)}</title><rect width='100%' height='100%' fill='white'/>",
        *(_svg(part) for part in picture.parts),
    ]
    return "\n".join(out) + "\n</svg>\n"


def _svg(part: Line | Shape | Text) -> str:
    if isinstance(part, Text):
        x, y = part.at
        turned = f" transform='rotate(-90 {x:.1f} {y:.1f})'" if part.upwards else ""
        weight = " font-weight='bold'" if part.bold else ""
        return (
            f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{part.anchor}' font-size='{part.size}'{weight}{turned} "
            f"{FONT}>{_safe(part.text)}</text>"
        )
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in part.points)
    if isinstance(part, Shape):
        return f"<path d='{path}Z' fill='{part.fill}' stroke='black'/>"
    dash = f" stroke-dasharray='{' '.join(f'{one:g}' for one in part.dash)}'" if part.dash else ""
    return f"<path d='{path}' fill='none' stroke='{part.tone}' stroke-width='{part.width:g}'{dash}/>"


def _safe(text: str) -> str:
    """Text escaped for XML, without characters that XML cannot represent."""
    return escape("".join(c if c.isprintable() else "\ufffd" for c in text))


def _around(corners: int, radius: float) -> list[Point]:
    angles = [2 * math.pi * i / corners for i in range(corners)]
    return [(radius * math.cos(angle), radius * math.sin(angle)) for angle in angles]


# Outlines of marks around 0, 0: circle, square, triangle, diamond, triangle down, cross, star, hexagon.
_SHAPES: tuple[list[Point], ...] = (
    _around(32, 5),
    [(-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)],
    [(0, -5.5), (5.5, 4.5), (-5.5, 4.5)],
    _around(4, 6),
    [(0, 5.5), (5.5, -4.5), (-5.5, -4.5)],
    [
        *((-2, -6), (2, -6), (2, -2), (6, -2), (6, 2), (2, 2)),
        *((2, 6), (-2, 6), (-2, 2), (-6, 2), (-6, -2), (-2, -2)),
    ],
    [(0, -6), (1.8, -1.8), (6, 0), (1.8, 1.8), (0, 6), (-1.8, 1.8), (-6, 0), (-1.8, -1.8)],
    _around(6, 6),
)
