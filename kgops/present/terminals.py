"""The signs that a terminal can show, by its environment, and signs that replace others."""

from __future__ import annotations

import os
from typing import Literal

from kgops.present.formats import width_of

Signs = Literal["all", "no braille", "ascii"]
Colours = Literal["many", "sixteen", "none"]
ASCII_VARIABLE = "KGOPS_ASCII"

# Their fonts have few signs or none. Others without 256 colours are old, or old settings: only braille is doubtful.
_FEW_SIGNS = ("linux", "vt", "ansi", "dumb", "cons25", "sun")
# Terminals whose names do not say it; over SSH, COLORTERM is seldom there.
_MANY_COLOURS = (
    "256color",
    "direct",
    "truecolor",
    "kitty",
    "alacritty",
    "foot",
    "ghostty",
    "wezterm",
    "contour",
    "iterm",
)


def colours_of_terminal() -> Colours:
    if os.environ.get("NO_COLOR"):
        return "none"
    return "sixteen" if _is_old() else "many"


def signs_of_terminal(encoding: str | None) -> Signs:
    """`encoding`: of the stream that is written to."""
    if os.environ.get(ASCII_VARIABLE, "0") not in ("", "0") or not _is_unicode(encoding or "ascii"):
        return "ascii"
    if os.environ.get("TERM", "").lower().startswith(_FEW_SIGNS):
        return "ascii"
    return "no braille" if _is_old() else "all"


def _is_old() -> bool:
    """Whether nothing says that it has more than 16 colours."""
    name = os.environ.get("TERM", "").lower()
    return not os.environ.get("COLORTERM") and not any(word in name for word in _MANY_COLOURS)


def _is_unicode(encoding: str) -> bool:
    return encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig", "utf16", "utf32")


# ASCII signs, and what each replaces. One column each, to keep columns aligned.
_TWINS = {
    "#": "▇█▉▊▋",
    ":": "░",
    "%": "▓",
    "?": "▒�",
    "~": "┄╌…",
    "|": "▏│┃",
    "=": "▌▐▍━",
    "-": "▎─▔·—–−",
    "+": "┤┬✓╭╮╰╯±",
    "`": "└",
    "'": "┘",
    ">": "▶→›",
    "<": "◀←‹≤⏎",
    "o": "◆",
    "_": "▁",
    "x": "✗×",
    "v": "▼↓",
    "^": "▲↑",
    "*": "■●",
    " ": "°",
    "/ ": "🔎",
}
_TO_ASCII = str.maketrans({sign: twin for twin, signs in _TWINS.items() for sign in signs})
_BRAILLE_LEVELS = " ..::-=+*#"  # by the number of dots set: keeps a curve's density, not its shape
_BLOCKS = " ▁▂▃▄▅▆▇█"


def in_ascii(text: str) -> str:
    """In ASCII; a wide character becomes two question marks."""
    return "".join(_twin(char) for char in text.translate(_TO_ASCII))


def _twin(char: str) -> str:
    if char.isascii():
        return char
    code = ord(char)
    if 0x2800 <= code <= 0x28FF:
        return _BRAILLE_LEVELS[(code - 0x2800).bit_count()]
    return "?" * width_of(char)


def without_braille(text: str) -> str:
    """Curves as blocks of the same height."""
    return "".join(_BLOCKS[(ord(c) - 0x2800).bit_count()] if "\u2800" <= c <= "\u28ff" else c for c in text)
