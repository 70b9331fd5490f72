"""History screen: all runs, with filter, sorting, marks, export and deletion."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from kgops.errors import KgopsError
from kgops.present.rows import Piece, Row, title
from kgops.present.wording import error_text
from screens import history_page
from screens.actions import ScreenName
from screens.background import begin
from screens.beside import HasPane
from screens.filtered_list import FilteredList
from screens.history_marks import Marks
from screens.history_query import HistoryReader, Page, Query
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from screens.widgets.row_window import RowWindow
from storage.errors import StorageError
from storage.run_list import SORTABLE

if TYPE_CHECKING:
    from textual.widgets import Input

    from screens.app import KgopsApp
    from screens.feed_state import FeedState
    from storage.runs import Run

_WEEK = "since:7d"


class History(FilteredList[Query, Page], HasPane):
    screen_name: ClassVar[ScreenName] = "history"
    pane_below_from = 36
    input_above = "#columns"

    def __init__(self, app: KgopsApp) -> None:
        reader = HistoryReader(app.home)
        super().__init__(reader, Query())
        self._reader = reader
        self._completions: tuple[str, list[str]] = ("", [])  # the filter text and its completions
        self._applied: str | None = None  # the filter that was applied, until its page was read
        self.marks = Marks(app)

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="filter")
        with Horizontal(id="with-pane"):
            with Vertical(classes="panel beside-pane") as panel:
                panel.border_title = "RUNS"
                yield Lines(id="columns")
                yield RowWindow(id="body")
            yield Lines(id="pane", panels=True)
        yield Lines(id="hint")
        yield Keys()

    # --- overrides ---

    @property
    def subject(self) -> Run | None:
        key = self.body.key
        return self._page.runs.get(key) if self._page is not None and isinstance(key, int) else None

    def rows_read(self, page: Page) -> tuple[range, int]:
        return range(page.first, page.first + len(page.runs)), len(page.numbers)

    def show_state(self, state: FeedState) -> None:
        if not self.shows_beside(state):
            super().show_state(state)

    def on_lines_pointed(self) -> None:
        self.query_one(Keys).offer(self.offered)
        self.point_pane()

    def on_lines_chosen(self) -> None:
        self.kgops.action_open()

    def title_row(self, width: int) -> Row:
        page = self._page
        right = ""
        if page is not None and page.total:
            of = f"{len(page.numbers):,} of " if len(page.numbers) != page.total else ""
            right = f"{of}{page.total:,} run{'' if page.total == 1 else 's'}"
        marked = [Piece(f"{len(self.marks):,} marked", "accent")] if self.marks else []
        return title("history", right, width, *marked)

    def _show_page(self, page: Page) -> None:
        if self._page is None or page.existing is not self._page.existing:
            self.marks.keep_existing(page.existing)
        super()._show_page(page)

    def _show_error(self, error: KgopsError | StorageError) -> None:
        super()._show_error(error)
        shown = self._page_query  # a sort that failed is not tried again
        self._query = self._query._replace(sort=shown.sort, descending=shown.descending)

    def draw(self, cursor: int | None = None) -> None:
        width, page = self.query_one("#columns", Lines).room, self._page
        self._say_ignored()
        self.show_title()
        self.point_pane()
        self.draw_pane()
        self.query_one("#filter", Lines).show([history_page.filter_row(self._query.text, page, width)])
        if page is None:
            return
        columns = self.query_one("#columns", Lines)
        columns.show([history_page.heading(self._query, page.metric, width)] if page.total else [])
        body = self.body
        if page.numbers:
            shown = history_page.RunRows(page, self.marks, width)
            body.put(shown, body.at if cursor is None else cursor)
        else:
            body.put(history_page.empty_rows(page, width), 0)
        self.query_one("#hint", Lines).show([history_page.hint_row(page, self._shown_completions, width)])

    # --- the filter ---

    def show_filter(self, text: str) -> None:
        self.kgops.last_filter = text or self.kgops.last_filter
        self.request(text=text, cursor=None)
        if self.is_mounted:
            self.draw()

    def action_week(self) -> None:
        """Turns the filter of the last 7 days on, or off."""
        terms = self._query.text.split()
        kept = [term for term in terms if not term.startswith("since:")]
        self.show_filter(" ".join(kept if _WEEK in terms else [*kept, _WEEK]))

    def action_last_filter(self) -> None:
        if not self.kgops.last_filter:
            self.say("no filter was used yet: / types one", "strong")
            return
        self.show_filter(self.kgops.last_filter)

    def action_save_filter(self) -> None:
        """Asks for a name."""
        begin(self, self._save_filter, instead="filter")

    async def _save_filter(self) -> None:
        from kgops.present import listing
        from screens.widgets.dialogs import Prompt

        text = self._query.text.strip()
        try:
            saved = await asyncio.to_thread(listing.read, self.kgops.home)
            question = f"save {text} as" if text else "drop the filter saved as"
            name = await self.app.push_screen_wait(
                Prompt(question, "", lambda typed: [one for one in saved if one.startswith(typed)])
            )
            if name:
                await asyncio.to_thread(listing.save, self.kgops.home, name, text)
                self.say(
                    f"saved as {name}: kgops runs --saved {name}" if text else f"{name} is dropped", "strong"
                )
        except KgopsError as error:
            self.say(error_text(error), "bad")

    def on_input_submitted(self) -> None:
        self.kgops.last_filter = self._query.text or self.kgops.last_filter
        self._applied = self._query.text
        self.query_one(Keys).clear()  # of what was said of the filter before
        self._say_ignored()

    def _say_ignored(self) -> None:
        """Once, of the filter that was applied: the page that was read last may be that of one typed before."""
        if self._applied is None or self._page_query.text != self._applied:
            return
        self._applied = None
        ignored_terms = history_page.ignored_terms(self._page)
        if ignored_terms is not None:
            self.say(ignored_terms, "warn")

    @property
    def _shown_completions(self) -> list[str]:
        """Completions of the current filter text."""
        text, completions = self._completions
        return completions if text == self._query.text else []

    async def action_complete(self) -> None:
        """Inserts the common prefix of all completions; a second Tab lists them."""
        entry = cast("Input", self.query_one("#filter-input"))
        text = entry.value
        metrics = await asyncio.to_thread(self._reader.metrics)
        completions = history_page.completions(text, metrics, await asyncio.to_thread(self._reader.tags))
        if entry.value != text:
            return  # the text changed meanwhile
        common = os.path.commonprefix(completions)  # noqa: RUF071 - by characters, as in a shell
        if len(common) > len(text):
            entry.value = common
            entry.cursor_position = len(common)
        self._completions = text, completions if len(completions) > 1 and common == text else []
        self.draw()

    # --- the order ---

    @property
    def sorts(self) -> list[str]:
        return history_page.sorts(self.query_one("#columns", Lines).room)

    @property
    def first_descending(self) -> Mapping[str, bool]:
        return history_page.FIRST

    def action_sort_by(self) -> None:
        """Asks for a column or metric; Tab completes it."""
        begin(self, self._sort_by, instead="sort")

    async def _sort_by(self) -> None:
        from screens.widgets.dialogs import Prompt

        columns = SORTABLE - {"peak_gpu", "peak_host"}  # short for columns that are among them
        names = sorted({*columns, *await asyncio.to_thread(self._reader.metrics)})

        def complete(text: str) -> list[str]:
            return [name for name in names if name.startswith(text)]

        name = await self.app.push_screen_wait(Prompt("sort by which column or metric?", "", complete))
        if not name:
            return
        matches = [name] if name in names else complete(name)
        if name in history_page.HEADS and name not in names:
            self.action_sort(history_page.HEADS[name])
        elif len(matches) > 1:
            self.say(f"{name} may be {', '.join(matches)}: type one of them", "warn")
        else:
            self.action_sort(matches[0] if matches else name)

    # --- marked runs ---

    @property
    def _number(self) -> int | None:
        """Number of the run under the cursor."""
        return self.body.key if isinstance(self.body.key, int) else None

    def action_mark(self) -> None:
        if self._number is not None:
            self.marks.toggle(self._number)
            self.draw()
            self.body.action_move(1)

    def action_mark_all(self) -> None:
        """Not while a term of the filter is ignored: more runs are listed than a person asked for."""
        ignored_terms = history_page.ignored_terms(self._page)
        if ignored_terms is not None:
            self.say(f"nothing is marked. {ignored_terms}", "warn")
            return
        self.marks.toggle_all(self._page.numbers if self._page is not None else ())
        self.draw()

    def action_delete(self) -> None:
        page = self._page
        shown = page.numbers if page is not None else ()

        async def deleted() -> None:
            if await self.marks.delete(self._number, shown):
                self.reload()

        begin(self.app, deleted)  # owned by the app: goes on when this screen closes

    def action_write(self) -> None:
        page = self._page
        self.marks.write(page.numbers if page is not None else (), page and page.metric)

    def action_compare(self) -> None:
        self.marks.compare()

    def action_tag(self) -> None:
        """Tags the marked runs, or else the run under the cursor."""
        if self.marks:
            self.marks.tag()
        else:
            super().action_tag()
