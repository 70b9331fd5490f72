"""Influences screen: test triples of a TracIn run with their proponents and opponents."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Container

from kgops.errors import KgopsError
from kgops.jobs.text import one_line
from kgops.present import influences as influence_views
from kgops.present.influences import RunInfluences
from kgops.present.rows import Piece, Row
from kgops.present.wording import going
from screens import influences_page
from screens.actions import ScreenName
from screens.background import begin
from screens.copying import Copyable
from screens.feed_state import HISTORY
from screens.influences_page import InfluenceFilter
from screens.run_screen import RunScreenBase
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from storage.errors import DatabaseMissing, StorageError

if TYPE_CHECKING:
    from screens.feed_state import FeedState, Wanted
    from storage.influences import Influence, TestTriple
    from storage.runs import Run

_SHARE = 20  # after a read, so many times as long without one: 5 % of a CPU
_WIDE = 110  # columns from which test triples are on the left


class Influences(RunScreenBase):
    screen_name: ClassVar[ScreenName] = "influences"

    def __init__(self, run: Run | None) -> None:
        """Influences of `run`, or of the newest TracIn run."""
        super().__init__()
        self._run = run
        self._influences: RunInfluences | None = None
        self._influence_filter = InfluenceFilter()
        self._error: str | None = None
        self._reading = False
        self._has_changed = False  # the record, since it was read

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        with Container(id="halves"):
            yield Lines(id="body", cursor=True, panels=True)
            yield Lines(id="influences", cursor=True, panels=True)
        yield Keys()

    def on_mount(self) -> None:
        self._read_again()

    def _read_again(self) -> None:
        self._has_changed = True
        if not self._reading:
            self._reading = True
            begin(self, self._keep_reading)

    async def _keep_reading(self) -> None:
        """Until the record has not changed meanwhile."""
        while self._has_changed:
            self._has_changed = False
            began = time.monotonic()
            await self._read()
            await asyncio.sleep(_SHARE * (time.monotonic() - began))
        self._reading = False

    async def _read(self) -> None:
        try:
            run = self._run or await asyncio.to_thread(influence_views.newest, self.kgops.home)
            if run is None:
                self._error = "no TracIn run yet"
            else:
                self._influences = await asyncio.to_thread(influence_views.of_run, self.kgops.home, run.id)
                self._run, self._error = self._influences.run, None
        except DatabaseMissing:
            self._error = "no TracIn run yet"
        except (KgopsError, StorageError) as error:
            self._error = error.message
        self.draw()

    # --- overrides ---

    @property
    def wanted(self) -> Wanted:
        return HISTORY

    @property
    def subject(self) -> Run | None:
        return self._run

    def show_state(self, state: FeedState) -> None:
        """Follows a run until it has ended, or until there is one."""
        ended = self._influences is not None and self._influences.run.ended
        if state.wanted == HISTORY and not ended:
            self._read_again()

    def title_row(self, width: int) -> Row:
        if self._run is None:
            return Row((Piece("influences", "strong"),))
        label = one_line(self._run.label, max(width - 40, 12))
        now = "" if self._run.ended else f"  {going(self._run)}"
        words = f"influences of {self._run.id} {self._run.workload} {label}"
        return Row((Piece(words, "strong"), Piece(now, "dim")))

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _WIDE, "wide")

    def draw(self) -> None:
        body, right = self.query_one("#body", Lines), self.query_one("#influences", Lines)
        body.show(influences_page.test_rows(self._influences, body.room, self._error))
        rows = influences_page.influence_rows(self._influences, self.test, self._influence_filter, right.room)
        right.show(rows)
        self.show_title()

    def on_lines_pointed(self) -> None:
        self.draw()

    # --- the triple under the cursor ---

    @property
    def test(self) -> TestTriple | None:
        key = self.query_one("#body", Lines).key
        tests = self._influences.tests if self._influences is not None else ()
        return next((one for one in tests if one.test == key), None)

    @property
    def _influence(self) -> Influence | None:
        key = self.query_one("#influences", Lines).key
        return next((one for one in self._shown if one.rank == key), None)

    @property
    def _shown(self) -> list[Influence]:
        test = self.test
        return (
            self._influence_filter.of(self._influences, test)
            if self._influences is not None and test is not None
            else []
        )

    # --- key actions ---

    @property
    def copyable(self) -> list[Copyable]:
        """The triples under the cursors, with tabs as in files of triples."""
        named = (("t", "test triple", self.test), ("n", "influence", self._influence))
        return [
            *super().copyable,
            *(
                Copyable(key, name, "\t".join(map(one_line, (one.head, one.relation, one.tail))))
                for key, name, one in named
                if one is not None
            ),
        ]

    def action_side(self) -> None:
        self._influence_filter = self._influence_filter.other_side()
        self.draw()

    def action_relation(self) -> None:
        if self._influences is not None and self.test is not None:
            self._influence_filter = self._influence_filter.next_relation(self._influences, self.test)
            self.draw()

    def action_search(self) -> None:
        self.kgops.prompt("filter triples by words; empty shows all", self._search, accepts_empty=True)

    def _search(self, words: str) -> None:
        self._influence_filter = self._influence_filter.with_words(words)
        self.draw()
