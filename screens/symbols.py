"""Unicode signs of the screens and their ASCII replacements."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

__all__ = ["PlainSigns", "speaks_unicode"]

# One column each, to keep columns aligned.
_TWINS = str.maketrans(
    {
        "▇": "#",
        "░": ":",
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
