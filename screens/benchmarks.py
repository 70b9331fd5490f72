"""Benchmarks screen: which options pay here, and what was measured."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Container

from kgops.errors import KgopsError
from kgops.experiments.benchmark_reader import (
    MEASURE_OPTIONS,
    BenchmarkPage,
    BenchmarkQuery,
    BenchmarkReader,
    Detail,
    Entry,
)
from kgops.present.rows import Row, text_row
from screens import benchmarks_page, copying
from screens.actions import ScreenName
from screens.background import begin, in_own_thread
from screens.filtered_list import FilteredList
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from screens.widgets.row_window import RowWindow
from storage.errors import StorageError

if TYPE_CHECKING:
    from kgops.experiments.benchmark_results import Series
    from screens.app import KgopsApp
    from storage.runs import Run

_WIDE = 150  # columns from which details are beside the list


class Benchmarks(FilteredList[BenchmarkQuery, BenchmarkPage]):
    screen_name: ClassVar[ScreenName] = "benchmarks"
    input_above = "#halves"

    def __init__(self, app: KgopsApp) -> None:
        reader = BenchmarkReader(app.home)
        super().__init__(reader, BenchmarkQuery())
        self._reader = reader
        self._detail: Detail | None = None
        self._detail_key: object = None  # key of its row
        self._pointed_key: object = None  # the row under the cursor when `_compared` was set
        self._compared = 0  # with which of the other machines: 0 for none, else from 1

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="filter")
        with Container(id="halves"):
            with Container(id="left", classes="panel") as left:
                left.border_title = "BENCHMARKS"
                yield Lines(id="columns")
                yield RowWindow(id="body")
            yield Lines(id="detail", scrolls=True, panels=True)
        yield Lines(id="hint")
        yield Keys()

    # --- reading, in a thread ---

    def _show_page(self, page: BenchmarkPage) -> None:
        super()._show_page(page)
        self.call_after_refresh(self._load_detail)  # the list is painted first

    def _show_error(self, error: KgopsError | StorageError) -> None:
        if self._page is None:
            self.add_class("alone")
        super()._show_error(error)

    def _load_detail(self) -> None:
        """Reads the details of the row under the cursor."""
        if not self.query("#body"):
            return  # the screen is closing and has lost its widgets already
        one = self._selected
        if one is not None:
            begin(self, partial(self._read, self.body.key, one), instead="detail")
        elif self._detail is not None:
            self._detail = self._detail_key = None
            self._draw_detail()

    async def _read(self, key: object, one: Entry) -> None:
        try:
            detail = await asyncio.to_thread(self._reader.detail, one)
        except (KgopsError, StorageError) as error:
            self.say(error.message, "bad")
            return
        if self.body.key == key:
            if key != self._detail_key:
                self.query_one("#detail", Lines).scroll_home(animate=False)
            self._detail, self._detail_key = detail, key
            self._draw_detail()

    # --- overrides ---

    @property
    def subject(self) -> Run | None:
        return None

    @property
    def _selected(self) -> Entry | None:
        """The entry under the cursor."""
        return self._page.rows.get(self.body.key) if self._page is not None else None

    def on_lines_pointed(self) -> None:
        if self.body.key != self._pointed_key:
            self._pointed_key, self._compared = self.body.key, 0
        if self.body.key != self._detail_key:
            self._load_detail()

    def rows_read(self, page: BenchmarkPage) -> tuple[range, int]:
        return range(len(page.rows)), len(page.rows)

    def title_row(self, width: int) -> Row:
        return benchmarks_page.title_row(self._page, width)

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _WIDE, "wide")

    def draw(self, cursor: int | None = None) -> None:
        page = self._page
        self.show_title()
        nothing = page is not None and not page.total
        filter_rows = [] if nothing else [benchmarks_page.filter_row(self._query.text, self.size.width)]
        self.query_one("#filter", Lines).show(filter_rows)
        keys = text_row("⏎ apply · esc restore the last filter · ↑↓ move", self.size.width, "dim")
        self.query_one("#hint", Lines).show([keys])
        if page is None:
            return
        body, width = self.body, self._left
        shown = bool(page.rows)
        self.set_class(not shown, "alone")
        self.query_one("#columns", Lines).show([benchmarks_page.heading(page.query, width)] if shown else [])
        if shown:
            body.put(benchmarks_page.entry_rows(page, width), body.at if cursor is None else cursor)
        else:
            body.put(benchmarks_page.empty_rows(page, self.size.width), 0)
        self._draw_detail()

    @property
    def _left(self) -> int:
        return self.query_one("#columns", Lines).room

    def _draw_detail(self) -> None:
        pane, others = self.query_one("#detail", Lines), self._others
        width = pane.room
        one = self._selected
        if one is not None and one.series is not None and 0 < self._compared <= len(others):
            from screens.benchmark_over_time import comparison_rows

            pane.show(comparison_rows(one.series, others[self._compared - 1], width))
        elif self._detail is None:
            pane.show([])
        else:
            from screens.benchmark_detail import detail_rows

            pane.show(detail_rows(self._detail, others, width))

    @property
    def _others(self) -> list[Series]:
        """The benchmark under the cursor on other machines, the newest first."""
        one = self._selected
        if one is None or one.series is None or self._page is None:
            return []
        mine = one.series
        same = [other for other in self._page.series if other.name == mine.name]
        return [other for other in same if other.hardware != mine.hardware]

    # --- key actions ---

    @property
    def sorts(self) -> list[str]:
        return benchmarks_page.sorts(self._left)

    @property
    def first_descending(self) -> Mapping[str, bool]:
        return benchmarks_page.FIRST

    def action_compare(self) -> None:
        """Compares with the next other machine that measured this benchmark; after the last one, shows the details."""
        others = self._others
        if not others:
            self.say("no other machine has measured it: kgops bench import takes results of others", "warn")
            return
        self._compared = (self._compared + 1) % (len(others) + 1)
        self.query_one("#detail", Lines).scroll_home(animate=False)
        self._draw_detail()

    def action_measure(self) -> None:
        """Asks, then starts the command of the entry under the cursor."""
        from kgops.experiments import benchmark_reader

        one = self._selected
        command = "" if one is None else MEASURE_OPTIONS if one.series is None else one.command
        if one is None or not benchmark_reader.can_start(command):
            self.say("put the cursor on a benchmark to start it", "warn")
            return
        bench = one.series.newest.bench if one.series is not None else None

        # It goes on when this screen closes.
        self.kgops.ask(f"start {command}", lambda: begin(self.app, partial(self._measure, bench, command)))

    async def _measure(self, bench: int | None, command: str) -> None:
        from kgops.experiments import benchmark_reader

        process = await self.kgops.carry_out(
            lambda session: benchmark_reader.start(session.home, session.conn, bench, command)
        )
        if process is None:
            return
        self.kgops.say(f"started {command}")
        code = await in_own_thread(process.wait)
        if code:
            self.kgops.say(benchmark_reader.trouble(self.kgops.home) or f"it ended with code {code}", "bad")
        else:
            self.kgops.say(f"ended: {command}")
        if self.is_attached:
            self.reload()

    def action_stop_measuring(self) -> None:
        begin(self.app, self._stop_measuring)

    async def _stop_measuring(self) -> None:
        from kgops.experiments import benchmark_reader

        said = await self.kgops.carry_out(lambda session: benchmark_reader.stop(session.home, session.conn))
        if said is not None:
            self.kgops.say(said)

    def action_copy(self) -> None:
        """Copies the command that repeats the entry under the cursor."""
        one = self._selected
        if one is None:
            self.say("no command to copy", "warn")
            return
        copying.copy(self.kgops, one.command)
