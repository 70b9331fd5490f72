"""List with a cursor over any number of rows; only visible rows are made."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from textual.geometry import Region, Size
from textual.message import Message

from kgops.present.rows import Row
from screens.widgets.lines import Lines


class RowWindow(Lines):
    """Shows rows made when drawn; the cursor is a row number, and all rows have a key."""

    class Scrolled(Message):
        """Other rows are visible: some may have to be read."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, cursor=True)
        self.at = 0

    @property
    def top(self) -> int:
        return round(self.scroll_y)

    def put(self, rows: Sequence[Row], at: int) -> None:
        """Repaints what changed. The cursor goes to row `at` and keeps its line on the screen."""
        before, line = self.at, self.at - self.top
        self.at = max(min(at, len(rows) - 1), 0)
        self.show(rows)
        if self.at != before:
            self._paint(before)
            self._paint(self.at)
            if self.top:  # at the very top, show rows that come in above
                self._scroll_by(self.at - line - self.top)
            if 0 <= line < self.size.height:  # leave the view alone if scrolled away from the cursor
                self._bring_into_sight(self.at)
        self.post_message(self.Pointed())

    def go(self, at: int) -> None:
        """Moves the cursor to row `at` and scrolls it into view."""
        if not self.rows:
            return
        before, self.at = self.at, max(min(at, len(self.rows) - 1), 0)
        if self.at != before:
            self.key = self.rows[self.at].key
            self._paint(before)
            self._paint(self.at)
            self.post_message(self.Pointed())
        self._bring_into_sight(self.at)

    def point_at(self, key: Hashable | None) -> None:
        """Moves the cursor to that key, if visible."""
        visible = range(self.top, min(self.top + self.size.height, len(self.rows)))
        line = next((y for y in visible if self.rows[y].key == key), None)
        if line is not None:
            self.go(line)

    def action_move(self, by: int) -> None:
        self.go(self.at + by)

    def action_edge(self, last: bool) -> None:
        self.go(len(self.rows) - 1 if last else 0)

    def action_page(self, by: int) -> None:
        page = by * max(self.size.height - 1, 1)
        self._scroll_by(page)
        self.go(self.at + page)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Scrolled())

    def on_resize(self) -> None:
        self._bring_into_sight(self.at)
        self.post_message(self.Scrolled())

    def _resize_to_rows(self) -> None:
        """Sets a new virtual size without a layout of the whole screen, unless scrolling starts or ends."""
        height, rows = self.size.height, len(self.rows)
        could = self.virtual_size.height > height
        if self.virtual_size.width != self.size.width or could != (rows > height):
            super()._resize_to_rows()
            return
        self.set_reactive(RowWindow.virtual_size, Size(self.size.width, rows))
        if self.scroll_y > self.max_scroll_y:
            self._go_to(self.max_scroll_y)

    def _keep_cursor(self, before: Sequence[Row]) -> None:
        self.key = self.rows[self.at].key if self.rows else None

    def _line_of(self, key: Hashable | None) -> int | None:
        return self.at if key is not None and key == self.key else None

    def _paint(self, at: int) -> None:
        self.refresh(Region(0, at - self.top, self.size.width, 1))
