"""Writes a picture as PNG with Pillow, whose built-in font works on servers without fonts."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import cycle, pairwise
from typing import Any

from kgops.errors import Unavailable
from kgops.experiments.svg import Line, Picture, Point, Text

__all__ = ["as_png"]

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
