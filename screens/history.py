"""History: every run there ever was, narrowed while one types, sorted by any column, marked, written out, deleted."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult

from screens import history_page
from screens.actions import Place as Where
from screens.background import begin
from screens.filtered_list import Filtered
from screens.history_marks import Marks
from screens.history_query import Answer, Asked, Browser
from screens.rows import Piece, Row, title
from screens.run_actions import ChangesRuns
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from screens.widgets.row_window import Window
from storage.runs import SORTABLE

if TYPE_CHECKING:
    from textual.widgets import Input

    from screens.app import KgopsApp
    from storage.runs import Run

__all__ = ["History"]


class History(Filtered[Asked, Answer], ChangesRuns):
    place: ClassVar[Where] = "history"
    typed_above = "#columns"
    largest_first = history_page.FIRST

    def __init__(self, app: KgopsApp) -> None:
        browser = Browser(app.home)
        super().__init__(browser, Asked())
        self._browser = browser
        self._choice: tuple[str, list[str]] = ("", [])  # what has been typed, and what it may become
        self.marks = Marks(app)

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="filter")
        yield Lines(id="columns")
        yield Window(id="body")
        yield Lines(id="told")
        yield Keys()

    # --- what all screens are asked ---

    @property
    def subject(self) -> Run | None:
        key = self.body.key
        return self._answer.runs.get(key) if self._answer is not None and isinstance(key, int) else None

    def reach(self, answer: Answer) -> tuple[range, int]:
        return range(answer.first, answer.first + len(answer.runs)), len(answer.numbers)

    def on_lines_pointed(self) -> None:
        self.query_one(Keys).offer(self.offered)

    def on_lines_chosen(self) -> None:
        self.kgops.action_open()

    def title_row(self, width: int) -> Row:
        answer = self._answer
        right = ""
        if answer is not None and answer.total:
            of = f"{len(answer.numbers):,} of " if len(answer.numbers) != answer.total else ""
            right = f"{of}{answer.total:,} run{'' if answer.total == 1 else 's'}"
        between = [Piece("paused", "warn")] if self.kgops.feed.paused else []
        between += [Piece(f"{len(self.marks):,} marked", "accent")] if self.marks else []
        return title("history", right, width, *between)

    def draw(self, place: int | None = None) -> None:
        width, answer = self.size.width, self._answer
        self.show_title()
        self.query_one("#filter", Lines).show([history_page.filter_row(self._asked.text, answer, width)])
        if answer is None:
            return
        columns = self.query_one("#columns", Lines)
        columns.show([history_page.heading(self._asked, answer.metric, width)] if answer.total else [])
        body = self.body
        if answer.numbers:
            shown = history_page.Shown(answer, self.marks, width)
            body.put(shown, body.at if place is None else place)
        else:
            body.put(history_page.empty_rows(answer, width), 0)
        self.query_one("#told", Lines).show([history_page.told_row(answer, self._choices, width)])

    # --- the filter ---

    def on_input_submitted(self) -> None:
        left_out = history_page.left_out(self._answer)
        if left_out is not None:
            self.say(left_out, "warn")

    @property
    def _choices(self) -> list[str]:
        """Until somebody types on."""
        text, found = self._choice
        return found if text == self._asked.text else []

    async def action_complete(self) -> None:
        """As far as all that it may become agrees; then what there is to choose from."""
        entry = cast("Input", self.query_one("#typed"))
        text = entry.value
        metrics = await asyncio.to_thread(self._browser.metrics)
        found = history_page.completions(text, metrics, await asyncio.to_thread(self._browser.tags))
        if entry.value != text:
            return  # somebody typed on
        common = os.path.commonprefix(found)  # noqa: RUF071 - by characters, as in a shell
        if len(common) > len(text):
            entry.value = common
            entry.cursor_position = len(common)
        self._choice = text, found if len(found) > 1 and common == text else []
        self.draw()

    # --- the order ---

    def sorts(self) -> list[str]:
        return history_page.sorts(self.size.width)

    def action_sort_by(self) -> None:
        """Asks for a name; Tab completes it."""
        begin(self, self._sort_by, instead="sort")

    async def _sort_by(self) -> None:
        from screens.widgets.choices import Filling

        names = sorted({*SORTABLE, *await asyncio.to_thread(self._browser.metrics)})

        def begin_so(text: str) -> list[str]:
            return [name for name in names if name.startswith(text)]

        name = await self.app.push_screen_wait(Filling("sort by which column or metric", "", begin_so))
        if name:
            self.action_sort(name)

    # --- marks, and what is done to what is marked ---

    @property
    def _number(self) -> int | None:
        """Of the run under the cursor."""
        return self.body.key if isinstance(self.body.key, int) else None

    def action_mark(self) -> None:
        if self._number is not None:
            self.marks.turn(self._number)
            self.draw()
            self.body.action_move(1)

    def action_mark_all(self) -> None:
        self.marks.turn_all(self._answer.numbers if self._answer is not None else ())
        self.draw()

    def action_delete(self) -> None:
        async def deleted() -> None:
            if await self.marks.delete(self._number):
                self.look_anew()

        begin(self.app, deleted)  # and goes on when this screen is left

    def action_write(self) -> None:
        answer = self._answer
        self.marks.write(answer.numbers if answer is not None else (), answer and answer.metric)

    def action_compare(self) -> None:
        self.marks.compare()

    def action_tag(self) -> None:
        """The marked ones, or else the one under the cursor."""
        if self.marks:
            self.marks.tag()
        else:
            super().action_tag()
