"""Benchmarks: what was claimed beside what was measured here, and each single value that was ever kept."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Container

from kgops.errors import KgopsError
from kgops.experiments.metric_query import MetricPage, MetricQuery, MetricReader
from kgops.jobs.text import one_line
from screens import benchmarks_page
from screens.actions import Action
from screens.actions import Place as Where
from screens.background import begin
from screens.filtered_list import Filtered
from screens.rows import Row, said
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from screens.widgets.row_window import Window
from storage.errors import StorageError

if TYPE_CHECKING:
    from kgops.experiments.benchmark_list import Entry
    from kgops.experiments.result_detail import Detail
    from screens.app import KgopsApp
    from storage.metric_query import Metric
    from storage.runs import Run

__all__ = ["Benchmarks"]

_SORTING = ("screen.sort_next", "screen.sort_before", "screen.reverse")
_WIDE = 150  # columns from which what is told of one stands beside the list


class Benchmarks(Filtered[MetricQuery, MetricPage]):
    place: ClassVar[Where] = "benchmarks"
    typed_above = "#halves"
    largest_first = benchmarks_page.FIRST

    def __init__(self, app: KgopsApp) -> None:
        looker = MetricReader(app.home)
        super().__init__(looker, MetricQuery())
        self._looker = looker
        self._told: Detail | None = None
        self._told_of: object = None  # the key of its row

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

    # --- asking, in a thread ---

    def _take(self, answer: MetricPage) -> None:
        super()._take(answer)
        self.call_after_refresh(self._tell)  # the list is painted first
        if not answer.complete:
            # What takes longer, once all that is known already is painted.
            self.call_after_refresh(self.ask, cursor=self.body.key)

    def _cannot(self, error: KgopsError | StorageError) -> None:
        if self._answer is None:
            self.add_class("alone")
        super()._cannot(error)

    def _tell(self) -> None:
        """What there is to say of the row under the cursor."""
        one = self._one
        if one is not None:
            begin(self, partial(self._read, self.body.key, one), instead="told")
        elif self._told is not None:
            self._told = self._told_of = None
            self._draw_detail()

    async def _read(self, key: object, one: Entry | Metric) -> None:
        try:
            told = await asyncio.to_thread(self._looker.detail, one)
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
    def subject(self) -> Run | None:
        return None

    @property
    def offered(self) -> list[Action]:
        """Benchmarks stand in the order in which they were held."""
        return [one for one in super().offered if self._asked.single or one.does not in _SORTING]

    @property
    def _one(self) -> Entry | Metric | None:
        """Under the cursor."""
        return self._answer.rows.get(self.body.key) if self._answer is not None else None

    def on_lines_pointed(self) -> None:
        if self.body.key != self._told_of:
            self._tell()

    def reach(self, answer: MetricPage) -> tuple[range, int]:
        return range(answer.first, answer.first + len(answer.rows)), len(answer.keys)

    def title_row(self, width: int) -> Row:
        return benchmarks_page.title_row(self._asked, self._answer, self.kgops.feed.paused, width)

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _WIDE, "wide")

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
        from screens.benchmark_detail import told_rows

        width = self.size.width
        detail.show(told_rows(self._told, width - self._left - 2 if width >= _WIDE else width))

    # --- what keys do ---

    def action_metrics(self) -> None:
        """Between benchmarks and the values one by one."""
        self.ask(single=not self._asked.single, cursor=None, around=0)

    def action_machines(self) -> None:
        """Whether what others measured is shown, too: other machines, GPUs, versions, commits."""
        self.ask(all_machines=not self._asked.all_machines, cursor=self.body.key)

    def action_copy(self) -> None:
        """The command that repeats what the cursor is on."""
        one = self._one
        if one is None:
            self.say("there is nothing to repeat", "warn")
            return
        self.app.copy_to_clipboard(one.command)
        self.say(f"copied: {one_line(one.command)}", "strong")

    def action_sort(self, by: str) -> None:
        """Values one by one: benchmarks stand in the order in which they were held."""
        if self._asked.single:
            super().action_sort(by)

    def sorts(self) -> list[str]:
        return benchmarks_page.sorts(self._left)
