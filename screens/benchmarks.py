"""Benchmarks: what was claimed beside what was measured here, and each single figure that was ever kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Container

from kgops.errors import KgopsError
from kgops.jobs.text import one_line
from kgops.measured.looking import BLOCK, Answer, Asked, Looker
from screens import benchmarks_page
from screens.actions import Action
from screens.actions import Place as Where
from screens.feed import HISTORY, Moment
from screens.place import Place
from screens.rows import Row, said
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from screens.widgets.window import Window
from storage.errors import StorageError

if TYPE_CHECKING:
    from textual.widgets import Input

    from kgops.measured.entries import Entry
    from kgops.measured.telling import Told
    from screens.app import KgopsApp
    from screens.feed import Wanted
    from storage.figures import Figure
    from storage.runs import Run

__all__ = ["Benchmarks"]

_SORTING = ("sort_next", "sort_before", "reverse")
_WIDE = 150  # columns from which what is told of one stands beside the list
_SHARE = 50  # times what it took to look anew, until that is done again: 2 % of a processor


class Benchmarks(Place):
    place: ClassVar[Where] = "benchmarks"

    def __init__(self, app: KgopsApp) -> None:
        super().__init__()
        self._looker = Looker(app.home)
        self._asked = Asked()
        self._answer: Answer | None = None
        self._told: Told | None = None
        self._told_of: object = None  # the key of its row
        self._typing = False
        self._before = Asked()  # typing began
        self._looking = False
        self._waits = False  # to look anew
        self._look_at = 0.0  # when that may be

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="filter")
        with Container(id="halves"):
            with Container(id="left"):
                yield Lines(id="columns")
                yield Window(id="body")
            yield Lines(id="detail", scrolls=True)
        yield Lines(id="told")
        yield Keys()

    def on_mount(self) -> None:
        self.query_one("#told").display = False
        self.ask()

    def on_unmount(self) -> None:
        """In a thread: another one may be reading still."""
        asyncio.get_running_loop().run_in_executor(None, self._looker.close)

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
                self._take(await asyncio.to_thread(self._looker.look, answered))
        except (KgopsError, StorageError) as error:
            self._cannot(error)
            return
        finally:
            self._looking = False
        if self._answer is not None and not self._answer.complete:
            # What takes longer, once all that is known already is painted.
            self.call_after_refresh(self.ask, cursor=self.body.key)

    def _cannot(self, error: KgopsError | StorageError) -> None:
        told = f"{error.message} — {error.hint}" if error.hint else error.message
        if self._answer is None:
            self.add_class("alone")
            self.body.put([said(told, self.size.width, "bad")], 0)
        else:
            self.say(told, "bad")

    def _take(self, answer: Answer) -> None:
        self._answer = answer
        if answer.place is not None:
            self._look_at = time.monotonic() + _SHARE * answer.took_s
        self.draw(answer.place)
        self.on_window_scrolled()  # rows may be in sight that nobody asked for
        self.call_after_refresh(self._tell)  # the list is painted first

    def _tell(self) -> None:
        """What there is to say of the row under the cursor."""
        one = self._one
        if one is not None:
            # Not as a coroutine: the next one may come before this has begun, and it would never be awaited.
            read: Callable[[], Awaitable[None]] = partial(self._read, self.body.key, one)
            self.run_worker(read, exclusive=True, group="told")
        elif self._told is not None:
            self._told = self._told_of = None
            self._draw_detail()

    async def _read(self, key: object, one: Entry | Figure) -> None:
        try:
            told = await asyncio.to_thread(self._looker.tell, one)
        except (KgopsError, StorageError) as error:
            self.say(error.message, "bad")
            return
        if self.body.key == key:
            if key != self._told_of:
                self.query_one("#detail", Lines).scroll_home(animate=False)
            self._told, self._told_of = told, key
            self._draw_detail()

    # --- what all screens are asked ---

    @property
    def wanted(self) -> Wanted:
        return HISTORY

    @property
    def subject(self) -> Run | None:
        return None

    @property
    def offered(self) -> list[Action]:
        """Benchmarks stand in the order in which they were held."""
        return [one for one in super().offered if self._asked.single or one.does not in _SORTING]

    @property
    def body(self) -> Window:
        return self.query_one("#body", Window)

    @property
    def _one(self) -> Entry | Figure | None:
        """Under the cursor."""
        return self._answer.rows.get(self.body.key) if self._answer is not None else None

    def show_moment(self, moment: Moment) -> None:
        """Something was recorded. While a person types, what is shown stays of one moment."""
        if moment.of == HISTORY and not self._waits:
            self._waits = True
            self.set_timer(max(self._look_at - time.monotonic(), 0.001), self.look_anew)

    def look_anew(self) -> None:
        self._waits = False
        if not self._typing and self.is_attached:
            middle = self.body.top + self.body.size.height // 2
            self.ask(look=self._asked.look + 1, cursor=self.body.key, around=middle)

    def on_lines_pointed(self) -> None:
        if self.body.key != self._told_of:
            self._tell()

    def on_window_scrolled(self) -> None:
        """Rows that come into sight next are read before they do."""
        answer = self._answer
        if answer is None or not answer.asked.single:
            return
        top, height, last = self.body.top, self.body.size.height, answer.first + len(answer.rows)
        too_high = answer.first > 0 and top - height < answer.first
        too_low = last < len(answer.keys) and top + 2 * height > last
        if too_high or too_low:
            self.ask(around=top + height // 2, cursor=None)

    def title_row(self, width: int) -> Row:
        paused = "paused" if self.kgops.feed.paused else ""
        return benchmarks_page.title_row(self._asked, self._answer, paused, width)

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _WIDE, "wide")
        self.ask(size=max(BLOCK, 4 * self.size.height))
        super().on_resize()

    def draw(self, place: int | None = None) -> None:
        answer = self._answer
        self.show_title()
        nothing = answer is not None and not answer.anything
        asked = [] if nothing else [benchmarks_page.filter_row(self._asked.text, self.size.width)]
        self.query_one("#filter", Lines).show(asked)
        told = said("⏎ keeps it · esc takes the one before · ↑↓ move", self.size.width, "dim")
        self.query_one("#told", Lines).show([told])
        if answer is None:
            return
        body, width = self.body, self._left
        shown = bool(answer.keys)
        self.set_class(not shown, "alone")
        self.query_one("#columns", Lines).show(
            [benchmarks_page.heading(answer.asked, width)] if shown else []
        )
        if shown:
            body.put(benchmarks_page.Shown(answer, width), body.at if place is None else place)
        else:
            body.put(benchmarks_page.empty_rows(answer, self.size.width), 0)
        self._draw_detail()

    @property
    def _left(self) -> int:
        width = self.size.width
        return (width - 2) * 2 // 5 if width >= _WIDE else width

    def _draw_detail(self) -> None:
        detail = self.query_one("#detail", Lines)
        if self._told is None:
            detail.show([])
            return
        from screens.benchmarks_told import told_rows

        width = self.size.width
        detail.show(told_rows(self._told, width - self._left - 2 if width >= _WIDE else width))

    # --- the filter ---

    def search(self) -> None:
        """Opens the line in which it is typed."""
        if self._typing:
            return
        from screens.widgets.typed import Typed

        self._before = self._asked._replace(cursor=self.body.key)
        self._typing = True
        self.query_one("#filter").display = False
        self.mount(Typed(self._asked.text, select_on_focus=False, id="typed"), before="#halves")
        self.query_one("#typed").focus()
        self._turn_footer()

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._typing and event.value != self._asked.text:
            self.ask(text=event.value, cursor=None)

    def on_input_submitted(self) -> None:
        self._end_typing()

    def action_leave_filter(self) -> None:
        self._end_typing()
        self.ask(text=self._before.text, cursor=self._before.cursor)

    def action_complete(self) -> None:
        """There are no names to complete here."""

    def _end_typing(self) -> None:
        self._typing = False
        self.query_one("#typed").remove()
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

    # --- what keys do ---

    def turn_figures(self) -> None:
        """Between benchmarks and the figures one by one."""
        self.ask(single=not self._asked.single, cursor=None, around=0)

    def turn_machines(self) -> None:
        """Whether what others measured is shown, too: other machines, cards, versions, commits."""
        self.ask(elsewhere=not self._asked.elsewhere, cursor=self.body.key)

    def copy(self) -> None:
        """The command that repeats what the cursor is on."""
        one = self._one
        if one is None:
            self.say("there is nothing to repeat", "warn")
            return
        self.app.copy_to_clipboard(one.command)
        self.say(f"copied: {one_line(one.command)}", "strong")

    def action_sort(self, by: str) -> None:
        """By another column, as people mostly want it; by the same once more, the other way round."""
        if not self._asked.single:
            return
        again = by == self._asked.sort
        descending = not self._asked.descending if again else benchmarks_page.FIRST[by]
        self.ask(sort=by, descending=descending, cursor=None)

    def turn_sort(self, by: int) -> None:
        known = benchmarks_page.sorts(self._left)
        now = known.index(self._asked.sort) if self._asked.sort in known else -1 if by > 0 else 0
        self.action_sort(known[(now + by) % len(known)])

    def reverse(self) -> None:
        self.action_sort(self._asked.sort)
