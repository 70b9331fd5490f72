"""History: every run there ever was, narrowed while one types, sorted by any column, marked, written out, deleted."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult

from kgops.errors import KgopsError
from kgops.runs.listing import BLOCK
from screens import history_page
from screens.actions import Place as Where
from screens.feed import HISTORY, Moment
from screens.history_browsing import Answer, Asked, Browser, states_of, write
from screens.place import Place
from screens.rows import Piece, Row
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from screens.widgets.window import Window
from storage.errors import StorageError
from storage.filters import Reading
from storage.runs import SORTABLE

if TYPE_CHECKING:
    from textual.widgets import Input

    from kgops.settings import Home
    from screens.feed import Wanted
    from storage.runs import Run

__all__ = ["History"]

_SHARE = 50  # times what it took to look at all runs anew, until that is done again: 2 % of a processor


class History(Place):
    place: ClassVar[Where] = "history"

    def __init__(self, home: Home) -> None:
        super().__init__()
        self._browser = Browser(home)
        self._asked = Asked()
        self._answer: Answer | None = None
        self._typing = False
        self._before = Asked()  # that began
        self._choice: list[str] = []  # what the word being typed may become
        self._looking = False
        self._look_at = 0.0  # when all runs may be looked at anew
        self._marked: dict[int, None] = {}  # in the order in which they were

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
                    self.say(f"{error.message} — {error.hint}" if error.hint else error.message, "bad")
                    if self._answer is not None:  # nothing to sort by, perhaps
                        known = self._answer.asked
                        self._asked = self._asked._replace(sort=known.sort, descending=known.descending)
        finally:
            self._looking = False

    def _take(self, answer: Answer) -> None:
        self._answer = answer
        if answer.place is not None:
            self._look_at = time.monotonic() + _SHARE * answer.took_s
        self.draw(answer.place)

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
        if moment.of != HISTORY or self._typing:
            return
        wait_s = self._look_at - time.monotonic()
        if wait_s <= 0:
            self.look_anew()
        else:
            self.set_timer(wait_s, self.look_anew)

    def look_anew(self) -> None:
        if not self._typing and self.is_attached:
            self.ask(look=self._asked.look + 1, cursor=self.body.key)

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
        marked = f"{len(self._marked):,} marked" if self._marked else ""
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
            shown = history_page.Shown(answer, self._marked, width)
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

        self._before = self._asked._replace(cursor=self.body.key if isinstance(self.body.key, int) else None)
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
        reading = self._answer.reading if self._answer is not None else Reading(())
        if reading.troubles:
            self.say(f"left out: {reading.troubles[0].message}", "warn")
        elif reading.pending:
            self.say(f"left out: {reading.pending} has no value yet", "warn")

    def action_leave_filter(self) -> None:
        self._end_typing()
        self.ask(text=self._before.text, cursor=self._before.cursor)

    async def action_complete(self) -> None:
        """As far as all that it may become agrees; then what there is to choose from."""
        entry = cast("Input", self.query_one("#typed"))
        text = entry.value
        found = history_page.completions(text, await asyncio.to_thread(self._browser.figures))
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

    def mark(self) -> None:
        number = self.body.key
        if isinstance(number, int):
            if number in self._marked:
                del self._marked[number]
            else:
                self._marked[number] = None
            self.draw()
            self.body.action_move(1)

    def mark_all(self) -> None:
        """All that are shown; where they are already, none is any more."""
        numbers = self._answer.numbers if self._answer is not None else ()
        if all(number in self._marked for number in numbers):
            for number in numbers:
                del self._marked[number]
        else:
            self._marked |= dict.fromkeys(numbers)
        self.draw()

    @property
    def _chosen(self) -> list[int]:
        """The marked ones, or else the one under the cursor."""
        if self._marked:
            return list(self._marked)
        return [self.body.key] if isinstance(self.body.key, int) else []

    def tag_marked(self) -> bool:
        """Asks which tags the marked runs get. False: none is marked, and the key means the run under the cursor."""
        from screens import changes
        from screens.ask import Ask

        marked = list(self._marked)

        async def tagged(words: str) -> None:
            done = await self.kgops.carry_out(lambda session: changes.tag_all(session, marked, words))
            if done is not None:
                self.kgops.say(done)

        def answered(words: str | None) -> None:
            if words:
                self.app.run_worker(tagged(words))

        if marked:
            many = f"the {len(marked):,} marked runs" if len(marked) > 1 else f"the marked run {marked[0]}"
            self.app.push_screen(Ask(f"tags for {many}: words add them, -word takes one away"), answered)
        return bool(marked)

    def delete(self) -> None:
        self.app.run_worker(self._delete(), exclusive=True, group="delete")  # goes on when this is left

    async def _delete(self) -> None:
        """Ended ones alone, and only once somebody said so: there is no way back."""
        from screens import changes  # with all that changes runs: what looking on does not need
        from screens.widgets.sure import Sure

        chosen = self._chosen
        try:
            known = await asyncio.to_thread(states_of, self.kgops.home, chosen)
        except (KgopsError, StorageError) as error:
            self.say(error.message, "bad")
            return
        ended = [number for number in chosen if number in known and known[number].ended]
        going = len(known) - len(ended)
        if not ended:
            self.say(
                "there is no ended run to delete: stop it first" if going else "there is no run to delete",
                "warn",
            )
            return
        named = f"run {ended[0]}" if len(ended) == 1 else f"{len(ended):,} runs with their folders"
        stay = f", and leave {going:,} that {'has' if going == 1 else 'have'} not ended" if going else ""
        question = f"delete {named}{stay}? It cannot be undone"
        if await self.app.push_screen_wait(Sure(question)):
            done = await self.kgops.carry_out(lambda session: changes.delete(session, ended, self._far))
            self._marked = {number: None for number in self._marked if number not in set(ended)}
            if done is not None:
                self.kgops.say(done)
            self.look_anew()

    def _far(self, told: str) -> None:
        """Called from the thread that deletes."""
        self.app.call_later(self.kgops.say, told)

    def write(self) -> None:
        """Asks for a file: the marked runs, or all that are shown."""
        from screens.ask import Ask

        answer = self._answer
        numbers = list(self._marked) or (answer.numbers if answer is not None else ())
        if answer is None or not numbers:
            self.say("there is nothing to write", "warn")
            return
        figures = (answer.figure,) if answer.figure is not None else ()

        def answered(name: str | None) -> None:
            if name:
                self.app.run_worker(self._written(name, numbers, figures))

        what = "the marked" if self._marked else "the shown"
        many = f"{what} {len(numbers):,} run{'' if len(numbers) == 1 else 's'}"
        self.app.push_screen(Ask(f"write {many} to which .csv or .json file, such as runs.csv"), answered)

    async def _written(self, name: str, numbers: Sequence[int], figures: Sequence[str]) -> None:
        try:
            path = await asyncio.to_thread(write, self.kgops.home, name, numbers, figures)
        except (KgopsError, StorageError) as error:
            self.kgops.say(error.message, "bad")
            return
        self.kgops.say(f"{len(numbers):,} run{'' if len(numbers) == 1 else 's'} written to {path}")

    def compare(self) -> None:
        from kgops.runs.comparing import MOST
        from screens.compare import Compare

        if not 2 <= len(self._marked) <= MOST:
            self.say(f"mark two to {MOST} runs to compare with the space bar", "warn")
            return
        self.app.push_screen(Compare(tuple(self._marked)))
