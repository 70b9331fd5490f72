"""Pictures of charts as SVG, as part of an HTML page, and as PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle, pairwise
from typing import Any, Literal
from xml.sax.saxutils import escape

from kgops.errors import Unavailable

Point = tuple[float, float]
Tone = Literal["black", "white", "#555", "#ddd"]
FONT = "font-family='Helvetica, Arial, sans-serif'"


@dataclass(frozen=True)
class Line:
    """A line through all points; `dash` alternates lengths of dashes and gaps. Its hue is seen on a page, and in a
    picture that has colours."""

    points: Sequence[Point]
    tone: Tone = "black"
    width: float = 1.0
    dash: tuple[float, ...] = ()
    hue: int | None = None  # a number of the page's colours


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
    upwards: bool = False


@dataclass
class Picture:
    width: int
    height: int
    title: str
    parts: list[Line | Shape | Text] = field(default_factory=list)
    colours: tuple[str, ...] = ()  # of hues, in an SVG file


def mark(number: int, at: Point, *, filled: bool) -> list[Line | Shape | Text]:
    """Mark of the variant or curve with this number; shapes repeat after eight, with a number next to them."""
    x, y = at
    shape = Shape([(x + a, y + b) for a, b in _SHAPES[number % len(_SHAPES)]], "black" if filled else "white")
    again = number // len(_SHAPES)
    return [shape, *([Text((x + 7, y - 3), str(again + 1), size=9)] if again else [])]


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


def as_svg(picture: Picture) -> str:
    size = f"{picture.width} {picture.height}"
    out = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{picture.width}' height='{picture.height}' "
        f"viewBox='0 0 {size}'>",
        f"<title>{_safe(picture.title)}</title><rect width='100%' height='100%' fill='white'/>",
        *(_svg(part, picture.colours) for part in picture.parts),
    ]
    return "\n".join(out) + "\n</svg>\n"


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


def _svg(part: Line | Shape | Text, colours: Sequence[str]) -> str:
    if isinstance(part, Text):
        return _text_element(part, f" {FONT}")
    colour = None if part.hue is None or not colours else colours[part.hue % len(colours)]
    if isinstance(part, Line):
        return _line_element(part, f"stroke='{colour or part.tone}'")
    edge = "" if part.faint else f" stroke='{colour or 'black'}'"
    return f"<path d='{_path(part)}Z' fill='{colour or part.fill}'{edge}/>"


def _text_element(part: Text, paint: str) -> str:
    x, y = part.at
    turned = f" transform='rotate(-90 {x:.1f} {y:.1f})'" if part.upwards else ""
    weight = " font-weight='bold'" if part.bold else ""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{part.anchor}' font-size='{part.size}'{weight}{turned}"
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


ZOOM = 2  # pixels per unit: sharp in print at half the size
FINER = 3  # drawn larger by this factor and scaled down, for smooth edges
_FONTS = {
    False: ("DejaVuSans.ttf", "LiberationSans-Regular.ttf", "Arial.ttf"),
    True: ("DejaVuSans-Bold.ttf", "LiberationSans-Bold.ttf", "Arial_Bold.ttf"),
}
_GREY = {"black": 0, "white": 255, "#555": 0x55, "#ddd": 0xDD}


def as_png(picture: Picture) -> bytes:
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise Unavailable(
            "PNG needs Pillow, which is not installed",
            "pip install 'kgops[png]', or use --to svg",
        ) from error
    scale = ZOOM * FINER
    canvas: Any = Image.new("L", (picture.width * scale, picture.height * scale), 255)
    draw: Any = ImageDraw.Draw(canvas)
    for part in picture.parts:
        if isinstance(part, Text):
            _write(canvas, part, scale)
        elif isinstance(part, Line):
            thick = max(1, round(part.width * scale))
            for segment in _dashes(part.points, part.dash):
                draw.line(
                    [(x * scale, y * scale) for x, y in segment], _GREY[part.tone], thick, joint="curve"
                )
        else:
            corners = [(x * scale, y * scale) for x, y in part.points]
            draw.polygon(corners, fill=_GREY[part.fill])
            if not part.faint:
                draw.line([*corners, *corners[:2]], _GREY["black"], scale, joint="curve")
    small = canvas.resize((picture.width * ZOOM, picture.height * ZOOM), Image.Resampling.BOX)
    out = io.BytesIO()
    small.save(out, "PNG", optimize=True, dpi=(96 * ZOOM, 96 * ZOOM))
    return out.getvalue()


def _write(canvas: Any, part: Text, scale: int) -> None:
    """Draws text; vertical text is drawn horizontally and rotated."""
    from PIL import Image, ImageDraw

    font = _font(part.size * scale, part.bold)
    anchor = {"start": "ls", "middle": "ms", "end": "rs"}[part.anchor]
    x, y = (round(one * scale) for one in part.at)
    text = "".join(c if c.isprintable() else "\ufffd" for c in part.text)
    if not part.upwards:
        ImageDraw.Draw(canvas).text((x, y), text, fill=0, font=font, anchor=anchor)
        return
    long, high = round(font.getlength(text)) + 2 * scale, 2 * part.size * scale
    lying: Any = Image.new("L", (long, high), 0)
    ImageDraw.Draw(lying).text((long // 2, high // 2), text, fill=255, font=font, anchor="ms")
    turned = lying.rotate(90, expand=True)
    canvas.paste(0, (x - high // 2, y - long // 2), turned)


@cache
def _font(size: int, bold: bool) -> Any:
    """A common system font, or else Pillow's own, which has few letters beyond ASCII."""
    from PIL import ImageFont

    for name in _FONTS[bold]:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)


def _dashes(points: Sequence[Point], dash: Sequence[float]) -> Iterator[list[Point]]:
    """The drawn segments of a dashed line; a dash continues around a corner."""
    if not dash:
        yield list(points)
        return
    lengths = cycle(dash)
    left, drawn = next(lengths), True
    segment = [points[0]]
    for (x1, y1), (x2, y2) in pairwise(points):
        whole = math.hypot(x2 - x1, y2 - y1)
        done = 0.0
        while whole - done > left:
            done += left
            at = (x1 + (x2 - x1) * done / whole, y1 + (y2 - y1) * done / whole)
            if drawn:
                yield [*segment, at]
            segment, drawn, left = [at], not drawn, next(lengths)
        left -= whole - done
        segment.append((x2, y2))
    if drawn and len(segment) > 1:
        yield segment
