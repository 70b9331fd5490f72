"""Colours and symbols by what the terminal can show."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

__all__ = [
    "THEMES",
    "PlainSigns",
    "Tones",
    "speaks_unicode",
    "tones_of",
]

Tones = dict[str, Style]

_DARK = {
    "text": "#d0d0d0",
    "strong": "#ffffff",
    "dim": "#808080",
    "accent": "#5fafff",
    "good": "#87d787",
    "warn": "#ffaf5f",
    "bad": "#ff5f5f",
    "other": "#d787d7",
    "back": "#121212",
    "cursor": "#303030",
}
_LIGHT = {
    "text": "#303030",
    "strong": "#000000",
    "dim": "#767676",
    "accent": "#005faf",
    "good": "#008700",
    "warn": "#af5f00",
    "bad": "#d70000",
    "other": "#870087",
    "back": "#ffffff",
    "cursor": "#dadada",
}
# Blue, yellow and vermilion are distinct in every kind of colour blindness.
_SAFE = {
    **_DARK,
    "accent": "#d7afff",
    "good": "#5fafff",
    "warn": "#ffd75f",
    "bad": "#ff8700",
    "other": "#af8787",
}

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
    )


THEMES = {name: _theme(name, colours) for name, colours in _COLOURS.items()}


def tones_of(theme: str) -> tuple[Tones, Tones]:
    """Styles by tone: plain, and under the cursor."""
    colours = _COLOURS.get(theme, _DARK)
    named = [name for name in colours if name not in ("back", "cursor")]

    def drawn(back: str) -> Tones:
        tones = {name: Style(color=colours[name], bgcolor=back) for name in named}
        tones["head"] = Style(color=colours["dim"], bgcolor=back, bold=True)
        tones["strong"] = Style(color=colours["strong"], bgcolor=back, bold=True)
        return tones

    return drawn(colours["back"]), drawn(colours["cursor"])


# One column each, to keep columns aligned.
_TWINS = str.maketrans(
    {
        "▇": "#",
        "░": ":",
        "▓": "%",
        "▒": "?",
        "┄": "~",
        "▏": "|",
        "█": "#",
        "▉": "#",
        "▊": "#",
        "▋": "#",
        "▌": "=",
        "▐": "=",
        "▍": "=",
        "▎": "-",
        "│": "|",
        "┃": "|",
        "┤": "+",
        "┬": "+",
        "━": "=",
        "╌": "~",
        "└": "`",
        "┘": "'",
        "▶": ">",
        "◀": "<",
        "◆": "o",
        "─": "-",
        "▔": "-",
        "▁": "_",
        "·": "-",
        "…": "~",
        "→": ">",
        "←": "<",
        "✓": "+",
        "✗": "x",
        "▼": "v",
        "▲": "^",
        "■": "*",
        "●": "*",
        "›": ">",
        "‹": "<",
        "—": "-",
        "–": "-",
        "−": "-",
        "°": " ",
        "×": "x",
        "≤": "<",
        "±": "+",
        "⏎": "<",
        "↑": "^",
        "↓": "v",
        "�": "?",
        "🔎": "/ ",
    }
)
_BRAILLE_LEVELS = " ..::-=+*#"  # by the number of dots set: keeps a curve's density, not its shape


def speaks_unicode() -> bool:
    """Whether stderr, where Textual writes, has a Unicode encoding."""
    encoding = getattr(sys.__stderr__, "encoding", None) or "ascii"
    return encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig", "utf16", "utf32")


class PlainSigns(LineFilter):
    """Turns all text into ASCII; a wide character becomes two question marks."""

    def apply(self, segments: Iterable[Segment], background: Color) -> list[Segment]:
        return [
            segment
            if segment.text.isascii()
            else Segment(plain(segment.text), segment.style, segment.control)
            for segment in segments
        ]


@lru_cache(4096)
def plain(text: str) -> str:
    return "".join(_twin(char) for char in text.translate(_TWINS))


def _twin(char: str) -> str:
    if char.isascii():
        return char
    code = ord(char)
    if 0x2800 <= code <= 0x28FF:
        return _BRAILLE_LEVELS[(code - 0x2800).bit_count()]
    return "?" * cell_len(char)
