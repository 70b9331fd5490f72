"""Log lines: rows are made only for the visible lines."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

from rich.cells import cell_len
from textual.binding import Binding
from textual.message import Message

from kgops.present.rows import BLANK, Piece, Row, text_row
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from textual import events

    from kgops.present.log_reader import Line, Page

_TONES = {"error": "bad", "warning": "warn", "info": "text"}
_FURTHEST = 8192  # columns to the right


class LogLines(Lines):
    """Follows the end until scrolled away. `mark` is the line number of the last search hit or click."""

    BINDINGS = [  # noqa: RUF012
        Binding("left", "pan(-1)", show=False),
        Binding("right", "pan(1)", show=False),
    ]

    class Scrolled(Message):
        """Other lines are visible: some may have to be read."""

    class Marked(Message):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, scrolls=True)
        self.ends_followed = self.follows = True
        self.left = 0  # hidden columns on the left
        self._page_rows: _PageRows | None = None

    @property
    def top(self) -> int:
        return round(self.scroll_y)

    @property
    def in_sight(self) -> range:
        return range(self.top, min(self.top + self.size.height, len(self.rows)))

    def put(self, page: Page, *, mark: int | None, searched: re.Pattern[str] | None) -> None:
        """Repaints what changed; scrolls only when following the end."""
        if mark != self.key:
            self.key = mark
            self.refresh()  # only the background changes, which `show` does not notice
        self._page_rows = _PageRows(page, self.left, self.size.width, mark, searched)
        self.show(self._page_rows)

    def show_message(self, why: str) -> None:
        """Shows a message in place of lines."""
        self._page_rows = None
        self.show([text_row(why, self.size.width, "dim")])

    def bring_to(self, row: int, below: int) -> None:
        """Scrolls the row to `below` lines from the top, as far as possible."""
        self._go_to(min(max(row - below, 0), self.max_scroll_y))

    def action_pan(self, by: int) -> None:
        """Scrolls sideways by half a screen."""
        self.left = min(max(self.left + by * max(self.size.width // 2, 1), 0), _FURTHEST)
        if self._page_rows is not None:
            self.show(self._page_rows.from_column(self.left))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Scrolled())

    def on_resize(self) -> None:
        super().on_resize()
        self.post_message(self.Scrolled())

    def on_click(self, event: events.Click) -> None:
        line = self._page_rows.page.row(self.top + event.y) if self._page_rows is not None else None
        if line is not None and line.number is not None:
            self.post_message(self.Marked(line.number))

    def _line_of(self, key: Hashable | None) -> int | None:
        return None  # never search all lines for a key


class _PageRows(Sequence[Row]):
    """Rows of a page, made when drawn."""

    def __init__(
        self, page: Page, left: int, width: int, mark: int | None, searched: re.Pattern[str] | None
    ) -> None:
        self.page, self._left, self._width = page, left, max(width, 1)
        self._mark, self._searched = mark, searched

    def from_column(self, left: int) -> _PageRows:
        return _PageRows(self.page, left, self._width, self._mark, self._searched)

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
        for match in self._searched.finditer(text) if self._searched is not None else ():
            if match.end() > match.start():
                yield Piece(text[done : match.start()], tone)
                yield Piece(match.group(), "strong")
                done = match.end()
        yield Piece(text[done:], tone)


def _cut(text: str, left: int, width: int) -> str:
    """Columns from `left` on; `…` where the line goes on; half a wide character becomes a space."""
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
