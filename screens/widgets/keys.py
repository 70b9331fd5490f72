"""The footer: the keys that do something here and now, or for a moment what was just done."""

from __future__ import annotations

from collections.abc import Iterable

from screens.actions import Action
from screens.rows import Piece, Row, said
from screens.widgets.lines import Lines

__all__ = ["Keys"]

_SHOWN_S = 4.0
_GAP = "  "


class Keys(Lines):
    """One line; what does not fit falls away from the left of help and quit, which always stay."""

    def __init__(self) -> None:
        super().__init__(id="keys")
        self._actions: tuple[Action, ...] = ()
        self._words: tuple[str, str] | None = None
        self._said = 0

    def offer(self, actions: Iterable[Action]) -> None:
        self._actions = tuple(action for action in actions if action.in_footer)
        self._draw()

    def say(self, text: str, tone: str) -> None:
        """In place of the keys, for as long as it takes to read."""
        self._words = (text, tone)
        self._said += 1
        number = self._said
        self.set_timer(_SHOWN_S, lambda: self._be_quiet(number))
        self._draw()

    def on_resize(self) -> None:
        super().on_resize()
        self._draw()

    def _be_quiet(self, number: int) -> None:
        if number == self._said:
            self._words = None
            self._draw()

    def _draw(self) -> None:
        if self._words is not None:
            text, tone = self._words
            self.show([said(text, self.size.width, tone)])
        else:
            self.show([Row(tuple(_offered(self._actions, self.size.width)))])


def _offered(actions: tuple[Action, ...], width: int) -> list[Piece]:
    first, last = list(actions[:-2]), list(actions[-2:])
    while first and sum(_width(action) for action in (*first, *last)) > width:
        first.pop()
    pieces: list[Piece] = []
    for action in (*first, *last):
        pieces += [
            Piece(action.sign, "accent", action.does),
            Piece(f" {action.name}{_GAP}", "dim", action.does),
        ]
    return pieces


def _width(action: Action) -> int:
    return len(action.sign) + len(action.name) + 1 + len(_GAP)
