"""Pictures of charts and graphs, as SVG in an HTML page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.sax.saxutils import escape

Point = tuple[float, float]
Tone = Literal["black", "white", "#555", "#ddd"]


@dataclass(frozen=True)
class Line:
    """A line through all points; `dash` alternates lengths of dashes and gaps. Its hue is a number of the page's
    colours."""

    points: Sequence[Point]
    tone: Tone = "black"
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
    return Shape([tip, (x - half * dy, y + half * dx), (x + half * dy, y - half * dx)], "black", hue)


def as_inline_svg(picture: Picture) -> str:
    """For an HTML page, which has the colours: each part names its own by a class, so that a page may be dark."""
    body = "".join(_inline(part) for part in picture.parts)
    label = _safe(picture.title).replace("'", "&#39;")
    return f"<svg viewBox='0 0 {picture.width} {picture.height}' role='img' aria-label='{label}'>{body}</svg>"


_CLASSES: dict[Tone, str] = {"black": "ink", "white": "paper", "#555": "dim", "#ddd": "grid"}


def _inline(part: Line | Shape | Text) -> str:
    if isinstance(part, Text):
        return _text_element(part, f" class='{_CLASSES['#555']}' fill='currentColor'")
    tone = part.fill if isinstance(part, Shape) else part.tone
    paint = _CLASSES[tone] if part.hue is None else f"hue{part.hue}"
    if isinstance(part, Line):
        return _line_element(part, f"class='{paint}' stroke='currentColor'")
    edge = "fill-opacity='.18'" if part.faint else "stroke='currentColor'"
    return f"<path class='{paint}' d='{_path(part)}Z' fill='currentColor' {edge}/>"


def _text_element(part: Text, paint: str) -> str:
    x, y = part.at
    weight = " font-weight='bold'" if part.bold else ""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{part.anchor}' font-size='{part.size}'{weight}"
        f"{paint}>{_safe(part.text)}</text>"
    )


def _line_element(part: Line, paint: str) -> str:
    dash = f" stroke-dasharray='{' '.join(f'{one:g}' for one in part.dash)}'" if part.dash else ""
    return f"<path d='{_path(part)}' fill='none' {paint} stroke-width='{part.width:g}'{dash}/>"


def _path(part: Line | Shape) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in part.points)


def _safe(text: str) -> str:
    """Text escaped for XML, without characters that XML cannot represent."""
    return escape("".join(c if c.isprintable() else "\ufffd" for c in text))
