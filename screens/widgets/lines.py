"""Scrolling list of rows that repaints only changed pieces."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from kgops.present.formats import drawn, width_of
from kgops.present.rows import BLANK, Piece, Row
from screens.symbols import painted
from screens.tips import tip_of
from screens.widgets.boxes import EDGES, boxed, has_panels

if TYPE_CHECKING:
    from textual import events

    from screens.app import KgopsApp

MORE_BELOW = " ↓"
_BARS = ("title", "keys")  # first and last line of a screen
_LEAST_LINES = 3  # of a widget that says how many more rows it has


class Lines(ScrollView):
    """Shows rows, with a cursor over those that have a key. The cursor stays on its key when rows move."""

    BINDINGS = [  # noqa: RUF012
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("home,g", "edge(False)", show=False),
        Binding("end,G", "edge(True)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
    ]

    class Chosen(Message):
        """The row under the cursor was clicked."""

        def __init__(self, key: Hashable) -> None:
            super().__init__()
            self.key = key

    class Pointed(Message):
        """The cursor moved to another row."""

    class Resized(Message):
        """Rows have to be made for another width; a newer message replaces one in the queue."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, Lines.Resized)

    def __init__(self, *, id: str, scrolls: bool = False, cursor: bool = False, panels: bool = False) -> None:
        """`panels`: sections of rows are drawn as panels, where the terminal has room."""
        super().__init__(id=id)
        self._panels = panels
        self._edge = "edge"  # tone
        self.can_focus = scrolls or cursor
        self.has_cursor = cursor
        self.rows: Sequence[Row] = ()
        self.key: Hashable | None = None
        self.ends_followed = False  # whether to follow the end while rows are added
        self.follows = False
        self._is_faded = False
        self._sign = ""

    @property
    def kgops(self) -> KgopsApp:
        return cast("KgopsApp", self.app)

    @property
    def room(self) -> int:
        """Columns for rows, within panels. Before the first layout it has the whole screen; a terminal that grows may
        leave it two columns until the next."""
        return max(self._columns - (EDGES if self.draws_panels else 0), 1)

    @property
    def lines_of_room(self) -> int:
        """Lines for rows, above the edge of the last panel."""
        return self.size.height - self.draws_panels

    @property
    def _columns(self) -> int:
        return self.size.width or self.app.size.width

    @property
    def draws_panels(self) -> bool:
        return self._panels and has_panels(*self.app.size)

    def show(self, rows: Sequence[Row]) -> None:
        """Repaints the rows that changed."""
        if self.draws_panels:
            rows = boxed(rows, self._columns, self.size.height)
            self._choose_edge(self.has_focus)
        before, self.rows = self.rows, rows
        if self.has_cursor:
            self._keep_cursor(before)
        if len(before) != len(self.rows):
            self._resize_to_rows()
        top = round(self.scroll_y)
        for y in range(top, top + self.size.height):
            old, new = _at(before, y), _at(self.rows, y)
            if old != new:
                self.refresh(Region(0, y - top, _end_of_changes(old, new), 1))
        self._show_more_below()

    def _show_more_below(self) -> None:
        before, self._sign = self._sign, self._more_below()
        frame = self._frame
        if frame is not None:
            # Textual draws a frame again whenever it is told its subtitle. Headings in the same frame say nothing.
            if self.can_focus and (frame.border_subtitle or "") != self._sign.strip():
                frame.border_subtitle = self._sign.strip()
        elif self._sign != before:
            width = self.size.width if self.draws_panels else max(len(before), len(self._sign))
            self.refresh(Region(self.size.width - width, self.size.height - 1, width, 1))

    @property
    def _frame(self) -> Widget | None:
        """What has this list within its border."""
        parent = self.parent
        is_framed = isinstance(parent, Widget) and parent.has_class("panel") and has_panels(*self.app.size)
        return cast("Widget", parent) if is_framed else None

    def fade(self, is_old: bool) -> None:
        """Draws all rows grey while nobody knows whether they still hold."""
        if is_old != self._is_faded:
            self._is_faded = is_old
            self.refresh()

    def render_line(self, y: int) -> Strip:
        row = _at(self.rows, y + round(self.scroll_y))
        plain, under_cursor = self.kgops.tones
        is_cursor = row.key is not None and row.key == self.key and not self._is_beside_focus
        tones = under_cursor if is_cursor or self.id in _BARS else plain
        pieces = [piece._replace(tone="dim") for piece in row.pieces] if self._is_faded else row.pieces
        segments = list(_segments(pieces, tones, plain[self._edge]))
        sign = self._more_below() if y == self.size.height - 1 and self._frame is None else ""
        if sign and self.draws_panels:
            return Strip([Segment(f"╰{'─' * (self.size.width - len(sign) - 4)}{sign} ─╯", plain[self._edge])])
        strip = Strip(segments).adjust_cell_length(self.size.width - len(sign), tones["text"])
        return Strip([*strip, Segment(sign, plain["dim" if self._is_faded else "accent"])]) if sign else strip

    @property
    def _is_beside_focus(self) -> bool:
        """Whether keys move in another list of this screen."""
        focused = self.screen.focused
        return focused is not self and isinstance(focused, Lines)

    def _choose_edge(self, has_focus: bool) -> None:
        """Panels have bright edges if keys move here, and another list of this screen could have them."""
        lists = (
            one for one in self.screen.query(Lines) if one.can_focus and one.display and one.draws_panels
        )
        self._edge = "accent" if has_focus and len(list(lists)) > 1 else "edge"

    def on_focus(self) -> None:
        self._choose_edge(True)
        self.refresh()

    def on_blur(self) -> None:
        self._choose_edge(False)
        self.refresh()

    def _more_below(self) -> str:
        """Says at the end of the last line how many rows are below it; beside text only by an arrow. Text that it
        covers ends in an ellipsis: a number must not look like another one."""
        last = round(self.scroll_y) + self.size.height
        below = len(self.rows) - last + self.draws_panels  # the edge covers a row
        if len(self.rows) <= last or not self.can_focus or self.size.height < _LEAST_LINES:
            return ""
        sign = f" ↓ {below:,} more"
        if self.draws_panels or self._frame is not None:
            return sign
        text = width_of("".join(piece.text for piece in _at(self.rows, last - 1).pieces).rstrip())
        if text + len(sign) <= self.size.width:
            return sign
        return MORE_BELOW if text + len(MORE_BELOW) <= self.size.width else f"…{MORE_BELOW}"

    # --- the cursor ---

    def point_at(self, key: Hashable | None) -> None:
        """Moves the cursor to the row with that key and scrolls it into view."""
        if key != self.key:
            before, self.key = self.key, key
            for old in (before, key):
                self._repaint(old)
            self.post_message(self.Pointed())
        line = self._line_of(key)
        if line is not None:
            self._bring_into_sight(line)

    def action_move(self, by: int) -> None:
        keyed_lines = [y for y, row in enumerate(self.rows) if row.key is not None] if self.has_cursor else []
        if not keyed_lines:
            self._scroll_by(by)
            return
        now = self._line_of(self.key)
        index = keyed_lines.index(now) + by if now in keyed_lines else 0
        if index < 0:
            self._go_to(0)  # show the headings above the first row, too
        elif index >= len(keyed_lines):
            self._go_to(self.max_scroll_y)
        else:
            self.point_at(self.rows[keyed_lines[index]].key)

    def action_edge(self, last: bool) -> None:
        keyed = [row.key for row in self.rows if row.key is not None] if self.has_cursor else []
        if keyed:
            self.point_at(keyed[-1] if last else keyed[0])
        self._scroll_by(len(self.rows) if last else -len(self.rows))

    def show_row_with(self, action: str) -> None:
        """Scrolls the row into view of which a click does that."""
        rows = enumerate(self.rows)
        line = next((y for y, row in rows if any(piece.action == action for piece in row.pieces)), None)
        if line is not None:
            self._bring_into_sight(line)

    def action_page(self, by: int) -> None:
        self._scroll_by(by * max(self.size.height - 1, 1))

    def on_click(self, event: events.Click) -> None:
        row = _at(self.rows, event.y + round(self.scroll_y))
        if row.key is None:
            return
        if row.key == self.key:
            self.post_message(self.Chosen(row.key))
        self.point_at(row.key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        left, texts = event.x, (piece.text for piece in _at(self.rows, event.y + round(self.scroll_y)).pieces)
        there = next((text for text in texts if (left := left - width_of(text)) < 0), "")
        tip = tip_of(there.strip(" ▼▲"))
        if tip != self.tooltip:
            self.tooltip = tip

    def _scroll_by(self, lines: int) -> None:
        self._go_to(min(max(self.scroll_y + lines, 0), self.max_scroll_y))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling to the end starts following it; scrolling away stops that."""
        super().watch_scroll_y(old_value, new_value)
        self._show_more_below()
        self.follows = self.ends_followed and new_value >= self.max_scroll_y

    # --- the rest ---

    def on_resize(self) -> None:
        self._resize_to_rows()
        self.post_message(self.Resized())

    def _resize_to_rows(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.rows))
        if self.follows or self.scroll_y > self.max_scroll_y:
            self._go_to(self.max_scroll_y)

    def _go_to(self, y: float) -> None:
        self.scroll_to(y=y, animate=False, force=True, immediate=True)

    def _keep_cursor(self, before: Sequence[Row]) -> None:
        if self._line_of(self.key) is not None:
            return
        keyed = [row.key for row in self.rows if row.key is not None]
        above = sum(row.key is not None for row in before[: _line_in(before, self.key) or 0])
        self.key = keyed[min(above, len(keyed) - 1)] if keyed else None
        self._repaint(self.key)

    def _line_of(self, key: Hashable | None) -> int | None:
        return _line_in(self.rows, key)

    def _bring_into_sight(self, line: int) -> None:
        top = round(self.scroll_y)
        if line < top:
            self._go_to(line)
        else:
            last = top + self.size.height - 1
            covered = (
                self.draws_panels and line < len(self.rows) - 1
            )  # by the edge that says how many are below
            if line > last - covered:
                self._go_to(line - self.size.height + 1 + covered)

    def _repaint(self, key: Hashable | None) -> None:
        line = self._line_of(key)
        if line is not None:
            self.refresh(Region(0, line - round(self.scroll_y), self.size.width, 1))


def _at(rows: Sequence[Row], y: int) -> Row:
    return rows[y] if 0 <= y < len(rows) else BLANK


def _line_in(rows: Sequence[Row], key: Hashable | None) -> int | None:
    if key is None:
        return None
    return next((y for y, row in enumerate(rows) if row.key == key), None)


def _style(tones: dict[str, Style], piece: Piece) -> Style:
    style = tones[piece.tone]
    return style if piece.action is None else style + Style.from_meta({"@click": piece.action})


def _segments(pieces: Sequence[Piece], tones: dict[str, Style], edge: Style) -> Iterator[Segment]:
    """One for each style that is seen: a blank takes the style before it, and less is sent."""
    text, style = "", tones["text"]
    back = style.bgcolor
    for piece in pieces:
        if piece.tone == "edge":
            own = edge
        elif (
            text and style != edge and style.bgcolor == back and piece.text.isspace() and piece.action is None
        ):
            own = style
        else:
            own = _style(tones, piece)
        if text and own != style:
            yield Segment(text, style)
            text = ""
        text, style = text + painted(drawn(piece.text), piece.tone), own
    if text:
        yield Segment(text, style)


def _end_of_changes(old: Row, new: Row) -> int:
    """Textual sends a line from its beginning up to there."""
    if old.key != new.key or _width(old) != _width(new):
        return max(_width(old), _width(new))
    end = _width(new)
    for before, after in zip(reversed(old.pieces), reversed(new.pieces), strict=False):
        if before != after:
            break
        end -= width_of(after.text)
    return end


def _width(row: Row) -> int:
    return sum(width_of(piece.text) for piece in row.pieces)
