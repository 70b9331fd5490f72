"""A list that is narrowed while a person types: asked in a thread, where the newest question wins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast

from kgops.errors import KgopsError
from screens.background import begin
from screens.feed import HISTORY, Moment
from screens.rows import said
from screens.run_screen import Place
from screens.widgets.keys import Keys
from screens.widgets.row_window import Window
from screens.wording import in_full
from storage.errors import StorageError

if TYPE_CHECKING:
    from textual.widgets import Input

    from screens.feed import Wanted

__all__ = ["Filtered"]

_READ = 200  # rows at once, or more where more are in sight
_SHARE = 50  # times what it took to look anew, until that is done again: 2 % of a CPU


class Question(Protocol):
    """A NamedTuple. Two that are equal have the same answer, until `look` is another number."""

    @property
    def text(self) -> str: ...
    @property
    def sort(self) -> str: ...
    @property
    def descending(self) -> bool: ...
    @property
    def look(self) -> int: ...
    @property
    def cursor(self) -> object: ...


class Reply(Protocol):
    @property
    def asked(self) -> Any: ...
    @property
    def place(self) -> int | None:
        """Of the cursor; None: where it was, since nothing was looked through anew."""

    @property
    def took_s(self) -> float: ...


Q = TypeVar("Q", bound=Question)
A = TypeVar("A", bound=Reply)
Asked = TypeVar("Asked", contravariant=True)
Found = TypeVar("Found", covariant=True)


class Looks(Protocol[Asked, Found]):
    """Reads from a disk: never called where a person waits for a key."""

    def look(self, asked: Asked) -> Found: ...
    def close(self) -> None: ...


class Filtered(Place, Generic[Q, A]):
    """Subclasses draw `_answer` to `_asked`. While a person types, what is shown stays of one moment."""

    typed_above: ClassVar[str]  # what the line to type in stands above
    largest_first: ClassVar[Mapping[str, bool]]  # of each column, how people mostly want to see it sorted

    def __init__(self, looks: Looks[Q, A], asked: Q) -> None:
        super().__init__()
        self._looks = looks
        self._asked = asked
        self._answer: A | None = None
        self._before = asked  # typing began
        self._typing = False
        self._looking = False
        self._waits = False  # to look anew
        self._look_at = 0.0  # when that may be

    def reach(self, answer: A) -> tuple[range, int]:
        """Which places of all rows were read, and how many rows there are."""
        raise NotImplementedError

    def sorts(self) -> list[str]:
        """What can be sorted by of what is in sight, from the left."""
        raise NotImplementedError

    @property
    def wanted(self) -> Wanted:
        return HISTORY

    @property
    def body(self) -> Window:
        return self.query_one("#body", Window)

    def on_mount(self) -> None:
        self.query_one("#told").display = False
        self.ask()

    def on_unmount(self) -> None:
        """In a thread: another one may be reading still."""
        asyncio.get_running_loop().run_in_executor(None, self._looks.close)

    # --- asking, in a thread; the newest question wins ---

    def ask(self, **changed: object) -> None:
        self._asked = cast("Q", cast("Any", self._asked)._replace(**changed))
        if not self._looking:
            self._looking = True
            begin(self, self._look)

    async def _look(self) -> None:
        answered = None
        try:
            while self._asked != answered:
                answered = self._asked
                try:
                    self._take(await asyncio.to_thread(self._looks.look, answered))
                except (KgopsError, StorageError) as error:
                    self._cannot(error)
        finally:
            self._looking = False

    def _take(self, answer: A) -> None:
        self._answer = answer
        if answer.place is not None:
            self._look_at = time.monotonic() + _SHARE * answer.took_s
        self.draw(answer.place)
        self.on_window_scrolled()  # rows may be in sight that nobody asked for

    def _cannot(self, error: KgopsError | StorageError) -> None:
        told = in_full(error)
        if self._answer is None:
            self.body.put([said(told, self.size.width, "bad")], 0)
            return
        self.say(told, "bad")  # and what cannot be sorted by is not asked again
        known = self._answer.asked
        self._asked = cast("Any", self._asked)._replace(sort=known.sort, descending=known.descending)

    def draw(self, place: int | None = None) -> None:
        """All of it again; the cursor goes to that place, or stays where it is."""
        raise NotImplementedError

    # --- what comes while one looks ---

    def show_moment(self, moment: Moment) -> None:
        """Somebody recorded something."""
        if moment.of == HISTORY and not self._waits:
            self._waits = True
            self.set_timer(max(self._look_at - time.monotonic(), 0.001), self.look_anew)

    def look_anew(self) -> None:
        self._waits = False
        if not self._typing and self.is_attached:
            middle = self.body.top + self.body.size.height // 2
            self.ask(look=self._asked.look + 1, cursor=self.body.key, around=middle)

    def on_window_scrolled(self) -> None:
        """Rows that come into sight next are read before they do."""
        if self._answer is None:
            return
        read, count = self.reach(self._answer)
        top, height = self.body.top, self.body.size.height
        too_high = read.start > 0 and top - height < read.start
        too_low = read.stop < count and top + 2 * height > read.stop
        if too_high or too_low:
            self.ask(around=top + height // 2)

    def on_resize(self) -> None:
        self.ask(size=max(_READ, 4 * self.size.height))

    # --- the filter ---

    def action_search(self) -> None:
        """Opens the line in which it is typed."""
        if self._typing:
            return
        from screens.widgets.text_line import Typed  # an editor of a line: seldom needed to look

        self._before = cast("Any", self._asked)._replace(cursor=self.body.key)
        self._typing = True
        self.query_one("#filter").display = False
        self.mount(Typed(self._asked.text, select_on_focus=False, id="typed"), before=self.typed_above)
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

    async def action_complete(self) -> None:
        """Where there are names to complete."""

    def _end_typing(self) -> None:
        self._typing = False
        self.query_one("#typed").remove()
        self.look_anew()
        self.query_one("#filter").display = True
        self.body.focus()
        self._turn_footer()
        self.draw()

    def _turn_footer(self) -> None:
        self.query_one("#told").display = self._typing
        self.query_one(Keys).display = not self._typing

    def action_move(self, by: int) -> None:
        self.body.action_move(by)

    def action_page(self, by: int) -> None:
        self.body.action_page(by)

    # --- the order ---

    def action_sort(self, by: str) -> None:
        """By another column, as people mostly want it; by the same once more, the other way round."""
        again = by == self._asked.sort
        descending = not self._asked.descending if again else self.largest_first.get(by, True)
        self.ask(sort=by, descending=descending, cursor=None)
        self.draw()

    def action_sort_next(self) -> None:
        self._turn_sort(1)

    def action_sort_before(self) -> None:
        self._turn_sort(-1)

    def _turn_sort(self, by: int) -> None:
        known = self.sorts()
        now = known.index(self._asked.sort) if self._asked.sort in known else -1 if by > 0 else 0
        self.action_sort(known[(now + by) % len(known)])

    def action_reverse(self) -> None:
        self.action_sort(self._asked.sort)
