"""History: every run there ever was, narrowed while one types, sorted by any column, marked, written out, deleted."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult

from kgops.errors import KgopsError
from kgops.runs.listing import BLOCK
from screens import history_page
from screens.actions import Place as Where
from screens.feed import HISTORY, Moment
from screens.history_browsing import Answer, Asked, Browser
from screens.history_marks import Marks
from screens.place import Place
from screens.rows import Piece, Row, said
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from screens.widgets.window import Window
from storage.errors import StorageError
from storage.runs import SORTABLE

if TYPE_CHECKING:
    from textual.widgets import Input

    from screens.app import KgopsApp
    from screens.feed import Wanted
    from storage.runs import Run

__all__ = ["History"]

_SHARE = 50  # times what it took to look at all runs anew, until that is done again: 2 % of a processor


class History(Place):
    place: ClassVar[Where] = "history"

    def __init__(self, app: KgopsApp) -> None:
        super().__init__()
        self._browser = Browser(app.home)
        self._asked = Asked()
        self._answer: Answer | None = None
        self._typing = False
        self._before = Asked()  # that began
        self._choice: list[str] = []  # what the word being typed may become
        self._looking = False
        self._waits = False  # to look at all runs anew
        self._look_at = 0.0  # when all runs may be looked at anew
        self.marks = Marks(app)

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="filter")
        yield Lines(id="columns")
        yield Window(id="body")
        yield Lines(id="told")
        yield Keys()

    def on_mount(self) -> None:
        self.query_one("#told").display = False
        self.ask()

    def on_unmount(self) -> None:
        """In a thread: another one may be reading still."""
        asyncio.get_running_loop().run_in_executor(None, self._browser.close)

    # --- asking, in a thread; the newest question wins ---

    def ask(self, **changed: object) -> None:
        self._asked = self._asked._replace(**changed)  # type: ignore[arg-type]
        if not self._looking:
            self._looking = True
            self.run_worker(self._look())

    async def _look(self) -> None:
        answered = None
        try:
            while self._asked != answered:
                answered = self._asked
                try:
                    self._take(await asyncio.to_thread(self._browser.look, answered))
                except (KgopsError, StorageError) as error:
                    told = f"{error.message} — {error.hint}" if error.hint else error.message
                    if self._answer is None:
                        self.body.put([said(told, self.size.width, "bad")], 0)
                    else:
                        self.say(told, "bad")  # and what cannot be sorted by is not asked again
                        known = self._answer.asked
                        self._asked = self._asked._replace(sort=known.sort, descending=known.descending)
        finally:
            self._looking = False

    def _take(self, answer: Answer) -> None:
        self._answer = answer
        if answer.place is not None:
            self._look_at = time.monotonic() + _SHARE * answer.took_s
        self.draw(answer.place)
        self.on_window_scrolled()  # rows may be in sight that nobody asked for

    # --- what all screens are asked ---

    @property
    def wanted(self) -> Wanted:
        return HISTORY

    @property
    def body(self) -> Window:
        return self.query_one("#body", Window)

    @property
    def subject(self) -> Run | None:
        key = self.body.key
        return self._answer.runs.get(key) if self._answer is not None and isinstance(key, int) else None

    def show_moment(self, moment: Moment) -> None:
        """Somebody changed something. While a person types, what is shown stays of one moment."""
        if moment.of == HISTORY and not self._waits:
            self._waits = True
            self.set_timer(max(self._look_at - time.monotonic(), 0.001), self.look_anew)

    def look_anew(self) -> None:
        self._waits = False
        if not self._typing and self.is_attached:
            middle = self.body.top + self.body.size.height // 2
            self.ask(look=self._asked.look + 1, cursor=self._number, around=middle)

    def on_lines_pointed(self) -> None:
        self.query_one(Keys).offer(self.offered)

    def on_window_scrolled(self) -> None:
        """Rows that come into sight next are read before they do."""
        if self._answer is None:
            return
        top, height, first = self.body.top, self.body.size.height, self._answer.first
        last = first + len(self._answer.runs)
        too_high = first > 0 and top - height < first
        too_low = last < len(self._answer.numbers) and top + 2 * height > last
        if too_high or too_low:
            self.ask(around=top + height // 2)

    def on_lines_chosen(self) -> None:
        self.kgops.action_open()

    def title_row(self, width: int) -> Row:
        answer = self._answer
        right = ""
        if answer is not None and answer.total:
            of = f"{len(answer.numbers):,} of " if len(answer.numbers) != answer.total else ""
            right = f"{of}{answer.total:,} run{'' if answer.total == 1 else 's'}"
        marked = f"{len(self.marks):,} marked" if self.marks else ""
        paused = "paused" if self.kgops.feed.paused else ""
        middle = "  ".join(word for word in (paused, marked) if word)
        gap = max(width - len("history") - len(middle) - len(right) - 2, 1)
        return Row(
            (
                Piece("history", "strong"),
                Piece(" " * gap),
                Piece(middle, "accent"),
                Piece("  "),
                Piece(right, "dim"),
            )
        )

    def on_resize(self) -> None:
        self.ask(size=max(BLOCK, 4 * self.size.height))

    def draw(self, place: int | None = None) -> None:
        width, answer = self.size.width, self._answer
        self.show_title()
        self.query_one("#filter", Lines).show([history_page.filter_row(self._asked.text, answer, width)])
        if answer is None:
            return
        columns = self.query_one("#columns", Lines)
        columns.show([history_page.heading(self._asked, answer.figure, width)] if answer.total else [])
        body = self.body
        if answer.numbers:
            shown = history_page.Shown(answer, self.marks, width)
            body.put(shown, body.at if place is None else place)
        else:
            body.put(history_page.empty_rows(answer, width), 0)
        self.query_one("#told", Lines).show([history_page.told_row(answer, self._choice, width)])

    # --- the filter ---

    def search(self) -> None:
        """Opens the line in which it is typed."""
        if self._typing:
            return
        from screens.widgets.typed import Typed  # an editor of a line: seldom needed to look

        self._before = self._asked._replace(cursor=self._number)
        self._typing = True
        self.query_one("#filter").display = False
        self.mount(Typed(self._asked.text, select_on_focus=False, id="typed"), before="#columns")
        self.query_one("#typed").focus()
        self._turn_footer()

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._typing and event.value != self._asked.text:
            self._choice = []
            self.ask(text=event.value, cursor=None)

    def on_input_submitted(self) -> None:
        self._end_typing()
        left_out = history_page.left_out(self._answer)
        if left_out is not None:
            self.say(left_out, "warn")

    def action_leave_filter(self) -> None:
        self._end_typing()
        self.ask(text=self._before.text, cursor=self._before.cursor)

    async def action_complete(self) -> None:
        """As far as all that it may become agrees; then what there is to choose from."""
        entry = cast("Input", self.query_one("#typed"))
        text = entry.value
        figures = await asyncio.to_thread(self._browser.figures)
        found = history_page.completions(text, figures, await asyncio.to_thread(self._browser.tags))
        if entry.value != text:
            return  # somebody typed on
        common = os.path.commonprefix(found)  # noqa: RUF071 - by characters, as in a shell
        if len(common) > len(text):
            entry.value = common
            entry.cursor_position = len(common)
        self._choice = found if len(found) > 1 and common == text else []
        self.draw()

    def _end_typing(self) -> None:
        self._typing, self._choice = False, []
        self.query_one("#typed").remove()
        self.look_anew()
        self.query_one("#filter").display = True
        self.body.focus()
        self._turn_footer()
        self.draw()

    def _turn_footer(self) -> None:
        self.query_one("#told").display = self._typing
        self.query_one("#keys").display = not self._typing

    def action_move(self, by: int) -> None:
        self.body.action_move(by)

    def action_page(self, by: int) -> None:
        self.body.action_page(by)

    # --- the order ---

    def action_sort(self, by: str) -> None:
        """By another column, as people mostly want it; by the same once more, the other way round."""
        again = by == self._asked.sort
        descending = not self._asked.descending if again else history_page.FIRST.get(by, True)
        self.ask(sort=by, descending=descending, cursor=None)
        self.draw()

    def turn_sort(self, by: int) -> None:
        """To the next column."""
        known = history_page.sorts(self.size.width)
        now = known.index(self._asked.sort) if self._asked.sort in known else -1 if by > 0 else 0
        self.action_sort(known[(now + by) % len(known)])

    def reverse(self) -> None:
        self.action_sort(self._asked.sort)

    def sort_by(self) -> None:
        """Asks for a name; Tab completes it."""
        self.run_worker(self._sort_by(), exclusive=True, group="sort")

    async def _sort_by(self) -> None:
        from screens.widgets.choices import Filling

        names = sorted({*SORTABLE, *await asyncio.to_thread(self._browser.figures)})

        def begin_so(text: str) -> list[str]:
            return [name for name in names if name.startswith(text)]

        name = await self.app.push_screen_wait(Filling("sort by which column or figure", "", begin_so))
        if name:
            self.action_sort(name)

    # --- marks, and what is done to what is marked ---

    @property
    def _number(self) -> int | None:
        """Of the run under the cursor."""
        return self.body.key if isinstance(self.body.key, int) else None

    def mark(self) -> None:
        if self._number is not None:
            self.marks.turn(self._number)
            self.draw()
            self.body.action_move(1)

    def mark_all(self) -> None:
        self.marks.turn_all(self._answer.numbers if self._answer is not None else ())
        self.draw()

    def delete(self) -> None:
        async def deleted() -> None:
            if await self.marks.delete(self._number):
                self.look_anew()

        self.app.run_worker(deleted())  # and goes on when this screen is left

    def write(self) -> None:
        answer = self._answer
        self.marks.write(answer.numbers if answer is not None else (), answer and answer.figure)
