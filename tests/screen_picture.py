"""A screen as text that a person can read and `diff` can compare: its lines, and below them the tone of each column."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.style import Style

from screens.app import KgopsApp
from screens.symbols import tones_of

_LETTERS = {
    "text": "t",
    "strong": "s",
    "dim": "d",
    "head": "h",
    "accent": "a",
    "data": "c",
    "field": "f",
    "good": "g",
    "warn": "w",
    "bad": "b",
    "other": "o",
    "edge": "e",
    "done": "p",
    "area": "r",
    "low": "i",
    "high": "j",
    "others": "m",
    "reserved": "l",
    "track": "k",
    "tab": "n",
}
_LEGEND = " ".join(f"{letter}={tone}" for tone, letter in _LETTERS.items())
_BETWEEN = f"~~~ {_LEGEND}; capitals and _ under the cursor, ? of no theme"


def picture(app: KgopsApp) -> str:
    """Lines of text, a line between, and as many lines of a letter for each column."""
    named = _named_styles(app.theme)
    texts: list[str] = []
    tones: list[str] = []
    for strip in app.screen._compositor.render_strips():
        texts.append(strip.text.rstrip())
        letters = (
            letter for segment in strip for letter in _letters(segment.text, named.get(_look(segment.style)))
        )
        tones.append("".join(letters).rstrip())
    return "\n".join([*texts, _BETWEEN, *tones]) + "\n"


Look = tuple[object, object, bool]


def _named_styles(theme: str) -> dict[Look, str]:
    plain, under_cursor = tones_of(theme)
    letters = {_look(style): _letter(tone) for tone, style in plain.items()}
    return letters | {_look(style): _letter(tone).upper() for tone, style in under_cursor.items()}


def _letter(tone: str) -> str:
    """Parts of all bars have the same letters."""
    return _LETTERS.get(tone) or _LETTERS[tone.partition("-")[2]]


def _look(style: Style | None) -> Look:
    if style is None:
        return None, None, False
    return style.color and style.color.triplet, style.bgcolor and style.bgcolor.triplet, bool(style.bold)


def _letters(text: str, letter: str | None) -> Iterator[str]:
    """A blank has no tone, unless it is of the cursor."""
    for char in text:
        if char == " ":
            yield "?" if letter is None else "_" if letter.isupper() else " "
        else:
            yield (letter or "?") * cell_len(char)
