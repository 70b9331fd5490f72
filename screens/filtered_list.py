"""Base of the history and benchmark screens: a list filtered while a person types, read in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast

from kgops.errors import KgopsError
from kgops.present.rows import text_rows
from kgops.present.wording import error_text
from screens.background import begin
from screens.feed_state import HISTORY, FeedState
from screens.run_screen import RunScreenBase
from screens.widgets.keys import Keys
from screens.widgets.row_window import RowWindow
from storage.errors import StorageError

if TYPE_CHECKING:
    from textual.widgets import Input

    from screens.feed_state import Wanted

_READ = 200  # rows per read; more on a tall terminal
_SHARE = 50  # a reload waits this many times as long as the last one took: 2 % of a CPU


class ListQuery(Protocol):
    """A NamedTuple. Equal queries give equal pages; a higher `look` forces a new read."""

    @property
    def text(self) -> str: ...
    @property
    def look(self) -> int: ...
    @property
    def cursor(self) -> object: ...
    @property
    def sort(self) -> str: ...
    @property
    def descending(self) -> bool: ...


class ListPage(Protocol):
    """A NamedTuple."""

    @property
    def cursor_row(self) -> int | None:
        """Row number of the cursor; None: unchanged."""

    @property
    def took_s(self) -> float: ...

    def row_of(self, key: object) -> int | None: ...


Query = TypeVar("Query", bound=ListQuery)
Page = TypeVar("Page", bound=ListPage)
QueryIn = TypeVar("QueryIn", contravariant=True)
PageOut = TypeVar("PageOut", covariant=True)


class ListReader(Protocol[QueryIn, PageOut]):
    """Reads from disk, so it is called in a thread only."""

    def look(self, query: QueryIn, /) -> PageOut: ...
    def close(self) -> None: ...


class FilteredList(RunScreenBase, Generic[Query, Page]):
    """Subclasses draw `_page`, read for `_query`. New runs are not shown while a person types."""

    input_above: ClassVar[str]  # selector of the widget below the filter input

    def __init__(self, reader: ListReader[Query, Page], query: Query) -> None:
        super().__init__()
        self._list_reader = reader
        self._query = query
        self._page: Page | None = None
        self._page_query = query  # the query of `_page`
        self._query_before = query  # before typing began
        self._key_then: object = None  # the cursor's row when the query's `cursor` was asked for
        self._typing = False
        self._reading = False
        self._reload_pending = False
        self._reload_at = 0.0  # earliest time of the next reload

    def rows_read(self, page: Page) -> tuple[range, int]:
        """Range of rows that the page holds, and the count of all rows."""
        raise NotImplementedError

    @property
    def sorts(self) -> list[str]:
        """Sort keys of the visible columns, from the left."""
        raise NotImplementedError

    @property
    def first_descending(self) -> Mapping[str, bool]:
        """Order of the first sort, by sort key."""
        raise NotImplementedError

    @property
    def wanted(self) -> Wanted:
        return HISTORY

    @property
    def body(self) -> RowWindow:
        return self.query_one("#body", RowWindow)

    def on_mount(self) -> None:
        self.query_one("#hint").display = False
        self.request()

    def on_unmount(self) -> None:
        """In a thread: the reader may still be reading in another."""
        asyncio.get_running_loop().run_in_executor(None, self._list_reader.close)

    # --- reading, in a thread; the newest query wins ---

    def request(self, **changed: object) -> None:
        self._query = cast("Query", cast("Any", self._query)._replace(**changed))
        if "cursor" in changed and self._page is not None:  # there is none before anything was read
            self._key_then = self.body.key
        if not self._reading:
            self._reading = True
            begin(self, self._keep_reading)

    async def _keep_reading(self) -> None:
        query = None
        try:
            while self._query != query:
                query, key_then = self._query, self._key_then
                try:
                    page = await asyncio.to_thread(self._list_reader.look, query)
                    self._page_query = query
                    self._show_page(self._followed(page, query, key_then))
                except (KgopsError, StorageError) as error:
                    self._show_error(error)
        finally:
            self._reading = False

    def _followed(self, page: Page, query: Query, key_then: object) -> Page:
        """Where a person has moved the cursor since it was asked for, the page with the cursor there."""
        if page.cursor_row is None or query.cursor is None or self.body.key == key_then:
            return page
        moved = cast("Any", page)._replace(cursor_row=page.row_of(self.body.key))
        return cast("Page", moved)

    def _show_page(self, page: Page) -> None:
        self._page = page
        if page.cursor_row is not None:
            self._reload_at = time.monotonic() + _SHARE * page.took_s
        self.draw(page.cursor_row)
        self.on_row_window_scrolled()  # rows may be visible that were not read yet

    def _show_error(self, error: KgopsError | StorageError) -> None:
        message = error_text(error)
        if self._page is None:
            self.body.put(text_rows(message, self.body.room, "bad"), 0)
            return
        self.say(message, "bad")

    def draw(self, cursor: int | None = None) -> None:
        """Redraws the screen; the cursor goes to row `cursor`, or stays."""
        raise NotImplementedError

    # --- new runs and scrolling ---

    def show_state(self, state: FeedState) -> None:
        """Reloads when the database has changed."""
        if state.wanted == HISTORY and not self._reload_pending:
            self._reload_pending = True
            self.set_timer(max(self._reload_at - time.monotonic(), 0.001), self.reload)

    def reload(self) -> None:
        self._reload_pending = False
        if not self._typing and self.is_attached:
            middle = self.body.top + self.body.size.height // 2
            self.request(look=self._query.look + 1, cursor=self.body.key, around=middle)

    def on_row_window_scrolled(self) -> None:
        """Reads the rows above and below before they are scrolled into view."""
        if self._page is None:
            return
        read, count = self.rows_read(self._page)
        top, height = self.body.top, self.body.size.height
        too_high = read.start > 0 and top - height < read.start
        too_low = read.stop < count and top + 2 * height > read.stop
        if too_high or too_low:
            self.request(around=top + height // 2)

    def on_resize(self) -> None:
        self.request(size=max(_READ, 4 * self.size.height))

    # --- the filter ---

    def action_search(self) -> None:
        """Opens the filter input."""
        if self._typing:
            return
        from screens.widgets.text_line import (
            FilterInput,
        )  # Textual's Input is slow to import and seldom needed

        self._query_before = cast("Any", self._query)._replace(cursor=self.body.key)
        self._typing = True
        self.query_one("#filter").display = False
        self.mount(
            FilterInput(self._query.text, select_on_focus=False, id="filter-input"), before=self.input_above
        )
        self.query_one("#filter-input").focus()
        self._toggle_footer()

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._typing and event.value != self._query.text:
            self.request(text=event.value, cursor=None)

    def on_input_submitted(self) -> None:
        self._end_typing()

    def action_leave_filter(self) -> None:
        self._end_typing()
        self.request(text=self._query_before.text, cursor=self._query_before.cursor)

    async def action_complete(self) -> None:
        """Tab: overridden where names can be completed."""

    def _end_typing(self) -> None:
        self._typing = False
        self.query_one("#filter-input").remove()
        self.reload()
        self.query_one("#filter").display = True
        self.body.focus()
        self._toggle_footer()
        self.draw()

    def _toggle_footer(self) -> None:
        self.query_one("#hint").display = self._typing
        self.query_one(Keys).display = not self._typing

    def action_move(self, by: int) -> None:
        self.body.action_move(by)

    def action_page(self, by: int) -> None:
        self.body.action_page(by)

    # --- the order ---

    def action_sort(self, by: str) -> None:
        """Sorts by that column; by the current column, reverses the order."""
        again = by == self._query.sort
        descending = not self._query.descending if again else self.first_descending.get(by, True)
        self.request(sort=by, descending=descending, cursor=None)
        self.draw()

    def action_sort_next(self) -> None:
        self._sort_by_step(1)

    def action_sort_before(self) -> None:
        self._sort_by_step(-1)

    def _sort_by_step(self, by: int) -> None:
        keys = self.sorts
        now = keys.index(self._query.sort) if self._query.sort in keys else -1 if by > 0 else 0
        self.action_sort(keys[(now + by) % len(keys)])

    def action_reverse(self) -> None:
        self.action_sort(self._query.sort)
