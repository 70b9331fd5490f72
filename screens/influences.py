"""Influences: a TracIn run's test triples, and what made the model believe each of them, or spoke against it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Container

from kgops.errors import KgopsError
from kgops.jobs.text import one_line
from kgops.views import influences as finding
from kgops.views.influences import TRACES, Neighbours, RunInfluences, Step
from screens import influences_page
from screens.actions import Place as Where
from screens.background import begin
from screens.influences_page import Narrowed
from screens.question import Ask
from screens.rows import Piece, Row, said
from screens.run_screen import Place
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from storage.errors import DatabaseMissing, StorageError

if TYPE_CHECKING:
    from screens.feed import Moment, Wanted
    from storage.influences import Influence, TestTriple
    from storage.runs import Run

__all__ = ["TRACES", "Influences"]

_WIDE = 110  # columns from which test triples stand on the left


class Influences(Place):
    place: ClassVar[Where] = "influences"

    def __init__(self, run: Run | None) -> None:
        """Of that run; without one, of the newest that traced."""
        super().__init__()
        self._run = run
        self._found: RunInfluences | None = None
        self._narrowed = Narrowed()
        self._trouble: str | None = None
        self._edges: Neighbours | None = None
        self._no_edges: str | None = None
        self._path: tuple[object, tuple[Step, ...]] | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        with Container(id="halves"):
            yield Lines(id="body", cursor=True)
            with Container(id="right"):
                yield Lines(id="found", cursor=True)
                yield Lines(id="path")
        yield Keys()

    def on_mount(self) -> None:
        begin(self, self._open)

    async def _open(self) -> None:
        try:
            run = self._run or await asyncio.to_thread(finding.newest, self.kgops.home)
            if run is None:
                self._trouble = "no run traced anything yet"
            else:
                self._found = await asyncio.to_thread(finding.of_run, self.kgops.home, run.id)
                self._run = self._found.run
        except DatabaseMissing:
            self._trouble = "no run traced anything yet"
        except (KgopsError, StorageError) as error:
            self._trouble = error.message
        self.draw()
        if self._found is not None and self._found.tests:
            await self._read_edges()

    async def _read_edges(self) -> None:
        assert self._run is not None
        try:
            self._edges = await asyncio.to_thread(finding.training_neighbours, self.kgops.home, self._run)
        except (KgopsError, StorageError) as error:
            self._no_edges = error.message
        self.draw()
        await self._look_for_path()

    # --- what all screens are asked ---

    @property
    def wanted(self) -> Wanted:
        return None

    @property
    def subject(self) -> Run | None:
        return self._run

    def show_moment(self, moment: Moment) -> None:
        """What goes on elsewhere is not shown here."""

    def title_row(self, width: int) -> Row:
        if self._run is None:
            return Row((Piece("influences", "strong"),))
        label = one_line(self._run.label, max(width - 40, 12))
        return Row((Piece(f"influences of {self._run.id} {self._run.workload} {label}", "strong"),))

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _WIDE, "wide")

    def draw(self) -> None:
        width = self.size.width
        left = (width - 2) // 3 if width >= _WIDE else width
        right = width - left - 2 if width >= _WIDE else width
        self.query_one("#body", Lines).show(influences_page.test_rows(self._found, left, self._trouble))
        shown = influences_page.found_rows(self._found, self.test, self._narrowed, right)
        self.query_one("#found", Lines).show(shown)
        self.query_one("#path", Lines).show(self._path_rows(right))
        self.show_title()

    def on_lines_pointed(self) -> None:
        self.draw()
        begin(self, self._look_for_path, instead="path")

    # --- the triple under the cursor ---

    @property
    def test(self) -> TestTriple | None:
        key = self.query_one("#body", Lines).key
        tests = self._found.tests if self._found is not None else ()
        return next((one for one in tests if one.test == key), None)

    @property
    def _influence(self) -> Influence | None:
        key = self.query_one("#found", Lines).key
        return next((one for one in self._shown if one.rank == key), None)

    @property
    def _shown(self) -> list[Influence]:
        test = self.test
        return self._narrowed.of(self._found, test) if self._found is not None and test is not None else []

    async def _look_for_path(self) -> None:
        test, one, edges = self.test, self._influence, self._edges
        if test is None or one is None or edges is None:
            return
        about, triple = (test.test, one.rank), (one.head, one.relation, one.tail)
        path = await asyncio.to_thread(finding.path_through, edges, test.head, test.tail, triple)
        self._path = about, path
        self.draw()

    def _path_rows(self, width: int) -> list[Row]:
        test, one = self.test, self._influence
        if self._found is None or test is None or one is None:
            return []
        if self._edges is None:
            waits = self._no_edges or "reading the training triples"
            return [said("PATH", width, "head"), said(waits, width, "dim")]
        if one.head not in self._edges:
            return [said("PATH", width, "head"), said("the training file spells it otherwise", width, "dim")]
        if self._path is None or self._path[0] != (test.test, one.rank):
            return [said("PATH", width, "head")]
        return influences_page.path_rows(self._found, self._path[1], width)

    # --- what keys do ---

    def action_side(self) -> None:
        self._narrowed = self._narrowed.other_side()
        self.draw()

    def action_relation(self) -> None:
        if self._found is not None and self.test is not None:
            self._narrowed = self._narrowed.next_relation(self._found, self.test)
            self.draw()

    def action_search(self) -> None:
        def answered(words: str | None) -> None:
            self._narrowed = self._narrowed.with_words(words or "")
            self.draw()

        self.app.push_screen(Ask("show triples with these words; nothing: all of them"), answered)

    def action_write(self) -> None:
        """Asks for a file; its ending says how what is shown is written."""
        if self._found is None or self.test is None:
            self.say("there is nothing to write", "warn")
            return
        found, test, shown = self._found, self.test, self._shown
        if not shown:
            self.say("nothing is shown that could be written", "warn")
            return

        def answered(name: str | None) -> None:
            if name:
                tables = influences_page.as_tables(found, test, shown)
                begin(self, partial(self._written, name, tables))

        name = f"influences-{found.run.id}-{test.test}"
        self.app.push_screen(Ask(f"write to which .csv, .tsv or .json file, such as {name}.csv"), answered)

    async def _written(self, name: str, tables: list[dict[str, object]]) -> None:
        try:
            path = await asyncio.to_thread(influences_page.write, name, tables)
        except KgopsError as error:
            self.say(error.message, "bad")
            return
        self.say(f"{len(tables)} triples written to {path}", "strong")
