"""Compare: two to eight runs side by side, with what differs, what came of it, and their curves over each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult

from kgops.errors import KgopsError, NoSuchRun
from kgops.jobs.numbers import middle
from kgops.settings import Home
from kgops.views.comparison import Comparison, compare
from screens import compare_page
from screens.actions import Place as Where
from screens.background import begin
from screens.compare_page import Curves
from screens.feed import HISTORY, Moment
from screens.rows import Piece, Row, said
from screens.run_screen import Place
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from screens.widgets.overlay import Spot
from storage import runs, series
from storage.database import Connection, explained, open_reader
from storage.errors import StorageError

if TYPE_CHECKING:
    from screens.feed import Wanted
    from storage.runs import Run

__all__ = ["Compare"]

_MOST = 8  # curves
_SHARE = 20  # times what it took to look, until it is done again: 5 % of a CPU
_SKEW_S = 86_400.0  # that a clock may be off; a step that large is a time
_QUIET = ("learning_rate",)  # seldom worth a look


class Compare(Place):
    place: ClassVar[Where] = "compare"

    def __init__(self, numbers: tuple[int, ...]) -> None:
        """The first of them is what the others are held against."""
        super().__init__()
        self._numbers = numbers
        self._found: Comparison | None = None
        self._curves: list[Curves] = []
        self._trouble: str | None = None
        self._waits = False  # to look again
        self._look_at = 0.0  # when it may be

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield _Runs(id="body", cursor=True)
        yield Lines(id="detail", scrolls=True)
        yield Keys()

    def on_mount(self) -> None:
        begin(self, self._open)

    async def _open(self) -> None:
        begin = time.monotonic()
        try:
            self._found, self._curves = await asyncio.to_thread(_look, self.kgops.home, self._numbers)
        except (KgopsError, StorageError) as error:
            self._trouble = error.message
        now = time.monotonic()
        self._look_at, self._waits = now + _SHARE * (now - begin), False
        self.draw()

    @property
    def wanted(self) -> Wanted:
        return HISTORY

    @property
    def subject(self) -> Run | None:
        key = self.query_one("#body", Lines).key
        found = self._found.runs if self._found is not None else ()
        return next((run for run in found if run.id == key), None)

    def show_moment(self, moment: Moment) -> None:
        """Of runs that go on metrics and curves change."""
        going = self._found is not None and not all(run.ended for run in self._found.runs)
        if moment.of == HISTORY and going and not self._waits:
            self._waits = True
            wait_s = max(self._look_at - time.monotonic(), 0.001)
            self.set_timer(wait_s, lambda: begin(self, self._open))

    def on_lines_pointed(self) -> None:
        self.draw()

    def on_lines_chosen(self) -> None:
        self.kgops.action_open()

    def title_row(self, width: int) -> Row:
        there = [run.id for run in self._found.runs] if self._found is not None else self._numbers
        named = ", ".join(map(str, there))
        return Row((Piece("compare", "strong"), Piece(f"  runs {named}; ratios are to the first", "dim")))

    def draw(self) -> None:
        width, body = self.size.width, self.query_one("#body", Lines)
        if self._found is None:
            waits = said(self._trouble or "reading them", width, "bad" if self._trouble else "dim")
            body.show([waits])
        else:
            runs = self._found.runs
            body.styles.height = len(runs)
            body.show(compare_page.run_rows(self._found, width))
            chosen = next((i for i, run in enumerate(runs) if run.id == body.key), 0)
            detail = compare_page.detail_rows(self._found, self._curves, chosen, width)
            self.query_one("#detail", Lines).show(detail)
        self.show_title()


class _Runs(Lines):
    """The cursor goes through the runs; behind the last of them keys scroll what stands below."""

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


def _look(home: Home, numbers: tuple[int, ...]) -> tuple[Comparison, list[Curves]]:
    with explained(home.database):
        conn = open_reader(home.database)
        try:
            chosen = runs.of_numbers(conn, numbers)
            if len(chosen) < 2:
                raise NoSuchRun("all of them but one are no longer in the record")
            return compare(conn, chosen), _curves(conn, chosen)
        finally:
            conn.close()


def _curves(conn: Connection, chosen: Sequence[Run]) -> list[Curves]:
    """Those that two of them have at least and that move, the most telling first."""
    having: dict[str, int] = {}
    for run in chosen:
        for one in series.of_run(conn, run.id):
            having[one.name] = having.get(one.name, 0) + (one.n > 1)
    names = sorted((name for name, count in having.items() if count > 1), key=_rank)
    read = (_curve(conn, chosen, name) for name in names)
    return list(islice((one for one in read if any(map(_moves, one.runs))), _MOST))


def _curve(conn: Connection, chosen: Sequence[Run], name: str) -> Curves:
    """What is sampled by the clock, as memory is, stands over the seconds since its run began."""
    found = [series.curve(conn, run.id, name) for run in chosen]
    began = [run.started_at or run.submitted_at for run in chosen]
    by_clock = all(one[0].first_step > at - _SKEW_S for one, at in zip(found, began, strict=True) if one)
    zeros = began if by_clock else [0.0] * len(chosen)
    spots = (
        tuple((middle(bucket.first_step, bucket.last_step) - zero, bucket.mean) for bucket in one)
        for one, zero in zip(found, zeros, strict=True)
    )
    return Curves(name, tuple(spots), by_clock)


def _moves(spots: Sequence[Spot]) -> bool:
    return len({value for _, value in spots if value is not None}) > 1


def _rank(name: str) -> tuple[int, str]:
    if name == "loss":
        return 0, name
    if name.endswith("mrr"):
        return 1, name
    if name.endswith("_mib"):
        return 4, name
    return (5 if name in _QUIET else 3 if name.endswith("_seconds") else 2), name
