"""Footer: keys that apply now, or for a few seconds a message."""

from __future__ import annotations

from collections.abc import Iterable

from kgops.present.rows import Piece, Row, text_row
from screens.actions import Action
from screens.widgets.lines import Lines

_SHOWN_S = 4.0
_GAP = "  "
_KEPT = ("start", "ask", "stop", "back", "jump", "help", "quit")


class Keys(Lines):
    """One line; keys that do not fit are dropped, the way back and what starts or stops a run last."""

    def __init__(self) -> None:
        super().__init__(id="keys")
        self._actions: tuple[Action, ...] = ()
        self._message: tuple[str, str] | None = None
        self._message_number = 0

    def offer(self, actions: Iterable[Action]) -> None:
        self._actions = tuple(action for action in actions if action.in_footer)
        self._draw()

    def say(self, text: str, tone: str) -> None:
        """Shows a message in place of the keys for a few seconds."""
        self._message = (text, tone)
        self._message_number += 1
        number = self._message_number
        self.set_timer(_SHOWN_S, lambda: self._clear_message(number))
        self._draw()

    def clear(self) -> None:
        self._message = None
        self._draw()

    def on_resize(self) -> None:
        super().on_resize()
        self._draw()

    def _clear_message(self, number: int) -> None:
        if number == self._message_number:
            self.clear()

    def _draw(self) -> None:
        if self._message is not None:
            text, tone = self._message
            self.show([text_row(text, self.size.width, tone)])
        else:
            self.show([Row(tuple(_key_pieces(self._actions, self.size.width)))])


def _key_pieces(actions: tuple[Action, ...], width: int) -> list[Piece]:
    shown = list(actions)
    while len(shown) > 1 and sum(map(_width, shown)) > width + len(_GAP):
        shown.remove(next((one for one in reversed(shown) if one.name not in _KEPT), shown[-1]))
    pieces: list[Piece] = []
    for action in shown:
        pieces += [
            Piece(action.sign, "accent", action.does),
            Piece(f" {action.name}{_GAP}", "dim", action.does),
        ]
    return pieces


def _width(action: Action) -> int:
    return len(action.sign) + len(action.name) + 1 + len(_GAP)
