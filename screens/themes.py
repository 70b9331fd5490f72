"""Three themes and their text styles. Colours have fixed meanings and never carry a meaning alone.

Every colour is one of the 256 numbered terminal colours: its code is half as long over SSH, and it
looks the same on terminals without true colour.
"""

from __future__ import annotations

from rich.style import Style
from textual.theme import Theme

__all__ = ["THEMES", "Tones", "tones_of"]

Tones = dict[str, Style]

_DARK = {
    "text": "#d0d0d0",
    "strong": "#ffffff",
    "dim": "#808080",
    "accent": "#5fafff",
    "good": "#87d787",
    "warn": "#ffaf5f",
    "bad": "#ff5f5f",
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
    "back": "#ffffff",
    "cursor": "#dadada",
}
# Blue, yellow and vermilion are distinct in every kind of colour blindness.
_SAFE = {**_DARK, "accent": "#d7afff", "good": "#5fafff", "warn": "#ffd75f", "bad": "#ff8700"}

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
