"""Colours and symbols by what the terminal can show."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

from kgops.present.terminals import colours_of_terminal, in_ascii, signs_of_terminal, without_braille

Tones = dict[str, Style]

# Colours that terminals with 256 of them have. Parts of a bar are weaker tones of it; an area is below its bright edge.
_DARK = {
    "text": "#d0d0d0",
    "strong": "#ffffff",
    "dim": "#8a8a8a",
    "accent": "#5fafff",
    "data": "#5fd7d7",
    "data-reserved": "#444444",
    "good": "#87d787",
    "good-others": "#5faf5f",
    "good-reserved": "#005f00",
    "warn": "#ffaf5f",
    "warn-others": "#d78700",
    "warn-reserved": "#875f00",
    "bad": "#ff5f5f",
    "bad-others": "#af5f5f",
    "bad-reserved": "#870000",
    "other": "#d787ff",
    "other-others": "#875faf",
    "area": "#005f5f",
    "area-low": "#008787",
    "area-high": "#00afaf",
    "edge": "#4e4e4e",
    "back": "#121212",
    "cursor": "#303030",
    "done": "#008787",
    "track": "#262626",
}
_LIGHT = {
    "text": "#303030",
    "strong": "#000000",
    "dim": "#767676",
    "accent": "#005faf",
    "data": "#008787",
    "data-reserved": "#c6c6c6",
    "good": "#008700",
    "good-others": "#5faf5f",
    "good-reserved": "#afd7af",
    "warn": "#af5f00",
    "warn-others": "#d7875f",
    "warn-reserved": "#ffd7af",
    "bad": "#d70000",
    "bad-others": "#d75f5f",
    "bad-reserved": "#ffafaf",
    "other": "#870087",
    "other-others": "#af5faf",
    "area": "#afd7d7",
    "area-low": "#87d7d7",
    "area-high": "#5fafaf",
    "edge": "#bcbcbc",
    "back": "#ffffff",
    "cursor": "#dadada",
    "done": "#87d7d7",
    "track": "#eeeeee",
}
# Blue, yellow and vermilion are distinct in every kind of colour blindness.
_SAFE = {
    **_DARK,
    "accent": "#d7afff",
    "data": "#c6c6c6",
    "good": "#5fafff",
    "good-others": "#5f87af",
    "good-reserved": "#005f87",
    "warn": "#ffd75f",
    "warn-others": "#d7af00",
    "warn-reserved": "#5f5f00",
    "bad": "#ff8700",
    "bad-others": "#d75f00",
    "bad-reserved": "#875f00",
    "other": "#af8787",
    "other-others": "#875f5f",
    "area": "#585858",
    "area-low": "#767676",
    "area-high": "#9e9e9e",
    "done": "#5f5f87",
}

_GROUNDS = ("back", "cursor", "done", "track")
_PARTS = {"others": "▓", "reserved": "░"}  # of a bar, and their signs where there are few colours
_STRONGEST = "▇"
_BY_TONE = str.maketrans(dict.fromkeys(_PARTS.values(), _STRONGEST))

_COLOURS = {"kgops-dark": _DARK, "kgops-light": _LIGHT, "kgops-safe": _SAFE}


def _theme(name: str, colours: dict[str, str]) -> Theme:
    return Theme(
        name=name,
        primary=colours["accent"],
        accent=colours["accent"],
        warning=colours["warn"],
        error=colours["bad"],
        success=colours["good"],
        foreground=colours["text"],
        background=colours["back"],
        surface=colours["back"],
        panel=colours["cursor"],
        dark=colours is not _LIGHT,
        variables={"edge": colours["edge"]},
    )


THEMES = {name: _theme(name, colours) for name, colours in _COLOURS.items()}


def tones_of(theme: str) -> tuple[Tones, Tones]:
    """Styles by tone: plain, and under the cursor."""
    colours = _COLOURS.get(theme, _DARK)
    named = [name for name in colours if name not in _GROUNDS]

    def drawn(back: str) -> Tones:
        tones = {name: Style(color=colours[name], bgcolor=back) for name in named}
        tones["head"] = Style(color=colours["strong"], bgcolor=back, bold=True)
        tones["strong"] = Style(color=colours["strong"], bgcolor=back, bold=True)
        tones["field"] = Style(
            color=colours["strong"], bgcolor=colours["track" if back == colours["back"] else "done"]
        )
        tones["done"] = Style(color=colours["strong"], bgcolor=colours["done"])
        tones["track"] = Style(color=colours["text"], bgcolor=colours["track"])
        tones["tab"] = Style(color=colours["strong"], bgcolor=colours["cursor"], bold=True)
        return tones

    return drawn(colours["back"]), drawn(colours["cursor"])


def painted(text: str, tone: str) -> str:
    """A part of a bar differs by its tone alone."""
    return text.translate(_BY_TONE) if tone.partition("-")[2] in _PARTS else text


@lru_cache(8)
def _signs_of_parts(theme: str) -> dict[RichColor, str]:
    parts = ((name.partition("-")[2], colour) for name, colour in _COLOURS.get(theme, _DARK).items())
    return {RichColor.parse(colour): _PARTS[part] for part, colour in parts if part in _PARTS}


def filters_of_terminal(theme: Callable[[], str], unicode: bool | None) -> Iterator[LineFilter]:
    """Replace what the terminal does not show; `unicode` as for the application."""
    colours = colours_of_terminal()
    if colours == "none" or (colours == "sixteen" and unicode is None):
        yield _FewColours(theme, has_sixteen=colours == "sixteen")
    # Textual writes to stderr.
    signs = signs_of_terminal(getattr(sys.__stderr__, "encoding", None)) if unicode is None else "all"
    if signs == "ascii" or unicode is False:
        yield PlainSigns(in_ascii)
    elif signs == "no braille":
        yield PlainSigns(without_braille)


class PlainSigns(LineFilter):
    """Replaces signs that the terminal may not have."""

    def __init__(self, replaced: Callable[[str], str]) -> None:
        super().__init__()
        self._replaced = lru_cache(4096)(replaced)

    def apply(self, segments: Iterable[Segment], background: Color) -> list[Segment]:
        return [
            segment
            if segment.text.isascii()
            else Segment(self._replaced(segment.text), segment.style, segment.control)
            for segment in segments
        ]


# By tone. Without colours a warning is underlined: only what is minor is dim.
_SIXTEEN = {
    "strong": Style(bold=True),
    "dim": Style(dim=True),
    "edge": Style(dim=True),
    "accent": Style(color="cyan"),
    "data": Style(color="cyan"),
    "good": Style(color="green"),
    "warn": Style(color="yellow"),
    "bad": Style(color="red", bold=True),
    "other": Style(color="magenta"),
}
_NONE = {
    "strong": Style(bold=True),
    "dim": Style(dim=True),
    "edge": Style(dim=True),
    "warn": Style(underline=True),
    "bad": Style(bold=True),
}


class _FewColours(LineFilter):
    """Turns colours of a theme into the terminal's own sixteen, or none; the cursor's background into reverse."""

    def __init__(self, theme: Callable[[], str], *, has_sixteen: bool) -> None:
        super().__init__()
        self._theme = theme
        self._paints = _SIXTEEN if has_sixteen else _NONE
        self._style = lru_cache(1024)(self._repainted)

    def apply(self, segments: Iterable[Segment], background: Color) -> list[Segment]:
        theme = self._theme()
        signs = _signs_of_parts(theme)
        return [
            Segment(
                text.replace(_STRONGEST, signs.get(style.color, _STRONGEST))
                if style and style.color
                else text,
                None if style is None else self._style(theme, style),
                control,
            )
            for text, style, control in segments
        ]

    def _repainted(self, theme: str, style: Style) -> Style:
        colours = _COLOURS.get(theme, _DARK)
        kept = Style(
            bold=style.bold,
            underline=style.underline,
            reverse=style.reverse,
            italic=style.italic,
            meta=style.meta,
        )
        if style.color is not None:
            tone = _nearest(style.color, colours, _GROUNDS).partition("-")[0]
            tone = "data" if tone == "area" else tone
            kept += Style.null() if tone == "dim" and style.bold else self._paints.get(tone, Style.null())
        if style.bgcolor is not None and _nearest(style.bgcolor, colours, ()) not in ("back", "track"):
            kept += Style(reverse=not style.reverse)
        return kept


def _nearest(colour: RichColor, colours: dict[str, str], but: tuple[str, ...]) -> str:
    """The tone whose colour it is, or is closest to where Textual mixed it."""
    if colour.is_default:
        return "text" if but else "back"
    red, green, blue = colour.get_truecolor()

    def distance(name: str) -> int:
        r, g, b = RichColor.parse(colours[name]).get_truecolor()
        return (r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2

    return min((name for name in colours if name not in but), key=distance)
