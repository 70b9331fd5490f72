"""Lines of a log in a window of their own: only what is in sight is ever made, however many there are."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

from rich.cells import cell_len
from textual.binding import Binding
from textual.message import Message

from screens.rows import BLANK, Piece, Row, said
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from textual import events

    from kgops.views.log_reader import Line, Page

__all__ = ["LogLines"]

_TONES = {"error": "bad", "warning": "warn", "info": "text"}
_FURTHEST = 8192  # columns to the right


class LogLines(Lines):
    """Follows its end until somebody leaves it. `mark` is the number of the line that somebody was brought to."""

    BINDINGS = [  # noqa: RUF012
        Binding("left", "pan(-1)", show=False),
        Binding("right", "pan(1)", show=False),
    ]

    class Scrolled(Message):
        """Other lines are in sight now: some may have to be read first."""

    class Marked(Message):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, scrolls=True)
        self.ends_followed = self.follows = True
        self.left = 0  # columns that are out of sight
        self._shown: _Shown | None = None

    @property
    def top(self) -> int:
        return round(self.scroll_y)

    @property
    def in_sight(self) -> range:
        return range(self.top, min(self.top + self.size.height, len(self.rows)))

    def put(self, page: Page, *, mark: int | None, searched: re.Pattern[str] | None) -> None:
        """Paints what differs; nobody who does not follow the end is moved."""
        if mark != self.key:
            self.key = mark
            self.refresh()  # what is written there stays the same, and only its background does not
        self._shown = _Shown(page, self.left, self.size.width, mark, searched)
        self.show(self._shown)

    def tell(self, why: str) -> None:
        """In place of lines."""
        self._shown = None
        self.show([said(why, self.size.width, "dim")])

    def bring_to(self, row: int, below: int) -> None:
        """Scrolls so that this row has so many lines above it, as far as there are any."""
        self._go_to(min(max(row - below, 0), self.max_scroll_y))

    def action_pan(self, by: int) -> None:
        """Half a screen to the side: what is further right on long lines."""
        self.left = min(max(self.left + by * max(self.size.width // 2, 1), 0), _FURTHEST)
        if self._shown is not None:
            self.show(self._shown.from_column(self.left))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Scrolled())

    def on_resize(self) -> None:
        super().on_resize()
        self.post_message(self.Scrolled())

    def on_click(self, event: events.Click) -> None:
        line = self._shown.page.row(self.top + event.y) if self._shown is not None else None
        if line is not None and line.number is not None:
            self.post_message(self.Marked(line.number))

    def _place(self, key: Hashable | None) -> int | None:
        return None  # a line is found by its number, and never by going through all of them


class _Shown(Sequence[Row]):
    """A page as rows, each made when it is drawn."""

    def __init__(
        self, page: Page, left: int, width: int, mark: int | None, searched: re.Pattern[str] | None
    ) -> None:
        self.page, self._left, self._width = page, left, max(width, 1)
        self._mark, self._searched = mark, searched

    def from_column(self, left: int) -> _Shown:
        return _Shown(self.page, left, self._width, self._mark, self._searched)

    def __len__(self) -> int:
        return self.page.rows

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        line = self.page.row(at)
        if line is None:
            return BLANK
        key = line.number if line.number is not None and line.number == self._mark else None
        return Row(tuple(self._pieces(line)), key)

    def _pieces(self, line: Line) -> Iterator[Piece]:
        text, tone, done = _cut(line.text, self._left, self._width), _TONES[line.level], 0
        for found in self._searched.finditer(text) if self._searched is not None else ():
            if found.end() > found.start():
                yield Piece(text[done : found.start()], tone)
                yield Piece(found.group(), "strong")
                done = found.end()
        yield Piece(text[done:], tone)


def _cut(text: str, left: int, width: int) -> str:
    """The columns from `left` on, with an ellipsis where the line goes on; half a wide character is a space."""
    if text.isascii():
        cut = text[left : left + width]
        return cut if len(text) <= left + width else f"{cut[:-1]}…"
    out: list[str] = []
    at = 0
    for char in text:
        wide = cell_len(char)
        if at + wide > left + width:
            return "".join(out[:-1]) + "…" if out else ""
        if at >= left:
            out.append(char)
        elif at + wide > left:
            out.append(" ")
        at += wide
    return "".join(out)
