"""Compare screen: two to eight runs side by side, with differing settings, metrics and curves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Container

from kgops.errors import KgopsError, NoSuchRun
from kgops.jobs.numbers import middle
from kgops.present.axes import is_by_clock
from kgops.present.comparison import Comparison, compare
from kgops.present.quality import compared_quality, read_quality
from kgops.present.rows import Piece, Row, text_row
from kgops.present.wording import curve_rank
from kgops.settings import Home
from kgops.supervisor.run_folder import RunFolder
from screens import compare_page
from screens.actions import ScreenName
from screens.background import begin
from screens.compare_page import Curves
from screens.feed_state import HISTORY, FeedState
from screens.marked_chart import MarksCharts
from screens.widgets.boxes import has_panels
from screens.widgets.chart_axis import Point
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from storage import run_list, series
from storage.database import Connection, explained, open_reader
from storage.errors import StorageError

if TYPE_CHECKING:
    from screens.feed_state import Wanted
    from storage.runs import Run

_MOST = 8  # curves
_WIDE, _FEW = 160, 4  # columns from which curves are beside the tables of so few runs
_SHARE = 20  # a reload waits this many times as long as the last one took: 5 % of a CPU
_RELATIONS = 20  # whose quality is compared


class Compare(MarksCharts):
    screen_name: ClassVar[ScreenName] = "compare"

    def __init__(self, numbers: tuple[int, ...]) -> None:
        """The first run is the reference of the ratios."""
        super().__init__()
        self._numbers = numbers
        self._comparison: Comparison | None = None
        self._curves: list[Curves] = []
        self._quality: list[tuple[str, ...]] = []
        self._error: str | None = None
        self._drawn_key: Hashable | None = None  # the run under the cursor, as drawn last
        self._reload_pending = False
        self._reload_at = 0.0  # earliest time of the next reload

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        runs = _Runs(id="body", cursor=True).add_class("panel")
        runs.border_title = "RUNS"
        yield runs
        with Container(id="halves"):
            yield Lines(id="detail", scrolls=True, panels=True)
            yield Lines(id="curves", scrolls=True, panels=True)
        yield Keys()

    def on_mount(self) -> None:
        begin(self, self._open)

    async def _open(self) -> None:
        begin = time.monotonic()
        try:
            read = await asyncio.to_thread(_read, self.kgops.home, self._numbers)
            self._comparison, self._curves, self._quality = read
        except (KgopsError, StorageError) as error:
            self._error = error.message
        now = time.monotonic()
        self._reload_at, self._reload_pending = now + _SHARE * (now - begin), False
        self.draw()

    @property
    def wanted(self) -> Wanted:
        return HISTORY

    @property
    def subject(self) -> Run | None:
        key = self.query_one("#body", Lines).key
        runs = self._comparison.runs if self._comparison is not None else ()
        return next((run for run in runs if run.id == key), None)

    def show_state(self, state: FeedState) -> None:
        """Reloads while a run is unfinished."""
        unfinished = self._comparison is not None and not all(run.ended for run in self._comparison.runs)
        if state.wanted == HISTORY and unfinished and not self._reload_pending:
            self._reload_pending = True
            wait_s = max(self._reload_at - time.monotonic(), 0.001)
            self.set_timer(wait_s, lambda: begin(self, self._open))

    @property
    def _is_wide(self) -> bool:
        runs = self._comparison.runs if self._comparison is not None else ()
        return self.size.width >= _WIDE and len(runs) <= _FEW

    @property
    def charts_in(self) -> str:
        return "#curves" if self._is_wide else "#detail"

    @property
    def charts(self) -> list[str]:
        return [one.name for one in self._curves]

    @property
    def charted_runs(self) -> tuple[int, ...]:
        return tuple(run.id for run in self._comparison.runs) if self._comparison is not None else ()

    def open_chosen(self) -> None:
        """The chart, once one is marked, else the run under the cursor; also where the cursor has just moved."""
        if self.chart is not None and self.query_one("#body", Lines).key == self._drawn_key:
            self.zoom(self.chart)
        else:
            super().open_chosen()

    def on_lines_pointed(self) -> None:
        self.chart = None  # Enter opens what was chosen last
        self.draw()

    def on_lines_chosen(self) -> None:
        self.kgops.action_open()

    def title_row(self, width: int) -> Row:
        found = self._comparison
        numbers = [run.id for run in found.runs] if found is not None else self._numbers
        named = ", ".join(map(str, numbers))
        return Row((Piece("compare", "strong"), Piece(f"  runs {named}; ratios to the first", "dim")))

    def draw(self) -> None:
        width, body = self.size.width, self.query_one("#body", Lines)
        if self._comparison is None:
            waits = text_row(self._error or "reading runs", width, "bad" if self._error else "dim")
            body.show([waits])
        else:
            runs = self._comparison.runs
            body.styles.height = len(runs) + 2 * has_panels(*self.app.size)
            body.show(compare_page.run_rows(self._comparison, body.room))
            self._drawn_key = body.key
            self.set_class(self._is_wide, "wide")
            detail, curves = (self.query_one(id, Lines) for id in ("#detail", "#curves"))
            drawn = compare_page.charts(
                self._curves,
                (curves if self._is_wide else detail).room,
                self.chart,
                curves.lines_of_room,
            )
            curves.show(drawn if self._is_wide else [])
            in_one = () if self._is_wide else drawn
            detail.show(compare_page.detail_rows(self._comparison, in_one, detail.room, self._quality))
        self.show_title()


class _Runs(Lines):
    """The cursor moves over the runs; past the last one, keys scroll the tables below."""

    @property
    def _below(self) -> Lines:
        return self.screen.query_one("#detail", Lines)

    def action_move(self, by: int) -> None:
        at_last = bool(self.rows) and self.key == self.rows[-1].key
        if (by > 0 and at_last) or (by < 0 and self._below.scroll_y > 0):
            self._below.action_move(by)
        else:
            super().action_move(by)

    def action_page(self, by: int) -> None:
        self._below.action_page(by)

    def action_edge(self, last: bool) -> None:
        self._below.action_edge(last)
        if not last:
            super().action_edge(last)


def _read(home: Home, numbers: tuple[int, ...]) -> tuple[Comparison, list[Curves], list[tuple[str, ...]]]:
    with explained(home.database):
        conn = open_reader(home.database)
        try:
            chosen = run_list.of_numbers(conn, numbers)
            if len(chosen) < 2:
                raise NoSuchRun("fewer than two of these runs are still in the record")
            qualities = [read_quality(RunFolder(home.runs / run.folder).results) for run in chosen]
            quality, _ = compared_quality(qualities, relations=_RELATIONS)
            return compare(conn, chosen), _curves_of(conn, chosen), quality
        finally:
            conn.close()


def _curves_of(conn: Connection, chosen: Sequence[Run]) -> list[Curves]:
    """Curves that change and that at least two runs have, most important first."""
    run_counts: dict[str, int] = {}
    for run in chosen:
        for one in series.of_run(conn, run.id):
            run_counts[one.name] = run_counts.get(one.name, 0) + (one.n > 1)
    names = sorted((name for name, count in run_counts.items() if count > 1), key=curve_rank)
    read = (_curve(conn, chosen, name) for name in names)
    return list(islice((one for one in read if any(map(_moves, one.runs))), _MOST))


def _curve(conn: Connection, chosen: Sequence[Run], name: str) -> Curves:
    """Curves sampled by time, as memory is, are drawn over seconds since the start of the run."""
    curves = [series.curve(conn, run.id, name) for run in chosen]
    began = [run.started_at or run.submitted_at for run in chosen]
    by_clock = all(is_by_clock(one, run) for one, run in zip(curves, chosen, strict=True) if one)
    zeros = began if by_clock else [0.0] * len(chosen)
    points = (
        tuple((middle(bucket.first_step, bucket.last_step) - zero, bucket.mean) for bucket in one)
        for one, zero in zip(curves, zeros, strict=True)
    )
    return Curves(name, tuple(points), by_clock)


def _moves(points: Sequence[Point]) -> bool:
    return len({value for _, value in points if value is not None}) > 1
