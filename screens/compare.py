"""Compare: two to eight runs side by side, with what differs, what came of it, and their curves over each other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult

from kgops.errors import KgopsError, NoSuchRun
from kgops.runs.comparing import Comparison, compare
from kgops.settings import Home
from screens import compare_page
from screens.actions import Place as Where
from screens.place import Place
from screens.rows import Piece, Row, said
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from storage import runs
from storage.database import explained, open_reader
from storage.errors import StorageError

if TYPE_CHECKING:
    from screens.feed import Moment, Wanted
    from storage.runs import Run

__all__ = ["Compare"]


class Compare(Place):
    place: ClassVar[Where] = "compare"

    def __init__(self, numbers: tuple[int, ...]) -> None:
        """The first of them is what the others are held against."""
        super().__init__()
        self._numbers = numbers
        self._found: Comparison | None = None
        self._trouble: str | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="body", cursor=True)
        yield Keys()

    def on_mount(self) -> None:
        self.run_worker(self._open())

    async def _open(self) -> None:
        try:
            self._found = await asyncio.to_thread(_look, self.kgops.home, self._numbers)
        except (KgopsError, StorageError) as error:
            self._trouble = error.message
        self.draw()

    @property
    def wanted(self) -> Wanted:
        return None

    @property
    def subject(self) -> Run | None:
        key = self.query_one("#body", Lines).key
        found = self._found.runs if self._found is not None else ()
        return next((run for run in found if run.id == key), None)

    def show_moment(self, moment: Moment) -> None:
        """What goes on elsewhere is not shown here."""

    def on_lines_pointed(self) -> None:
        self.draw()

    def on_lines_chosen(self) -> None:
        self.kgops.action_open()

    def title_row(self, width: int) -> Row:
        named = ", ".join(map(str, self._numbers))
        return Row((Piece("compare", "strong"), Piece(f"  runs {named}; ratios are to the first", "dim")))

    def draw(self) -> None:
        width = self.size.width
        if self._found is not None:
            shown = compare_page.rows(self._found, width)
        else:
            shown = [said(self._trouble or "reading them", width, "bad" if self._trouble else "dim")]
        self.query_one("#body", Lines).show(shown)
        self.show_title()


def _look(home: Home, numbers: tuple[int, ...]) -> Comparison:
    with explained(home.database):
        conn = open_reader(home.database)
        try:
            chosen = runs.of_numbers(conn, numbers)
            if len(chosen) < 2:
                raise NoSuchRun("all of them but one are no longer in the record")
            return compare(conn, chosen)
        finally:
            conn.close()
