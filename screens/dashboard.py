"""The first screen: GPUs, what runs, what waits for what, what ended recently, and what to worry about."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult

from kgops.jobs.text import one_line
from screens import dashboard_page
from screens.actions import Place as Where
from screens.feed import DASHBOARD, Moment
from screens.rows import Piece, Row, title
from screens.run_actions import ChangesRuns
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from kgops.views.overview import Overview
    from screens.feed import Wanted
    from storage.runs import Run

__all__ = ["Dashboard"]


class Dashboard(ChangesRuns):
    place: ClassVar[Where] = "dashboard"

    def __init__(self) -> None:
        super().__init__()
        self._moment = Moment()
        self._host = one_line(socket.gethostname(), 40)

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="body", cursor=True)
        yield Keys()

    @property
    def wanted(self) -> Wanted:
        return DASHBOARD

    @property
    def subject(self) -> Run | None:
        key, seen = self.query_one("#body", Lines).key, self._moment.overview
        if seen is None:
            return None
        shown = (*(one.run for one in seen.running), *seen.waiting, *(one.run for one in seen.recent))
        return next((run for run in shown if run.id == key), None)

    def show_moment(self, moment: Moment) -> None:
        if moment.of != DASHBOARD:
            return  # meant for a screen in front of this one
        if moment.gpus is None and self._moment.gpus is not None:
            moment = replace(moment, gpus=self._moment.gpus, no_gpus=self._moment.no_gpus)
        self._moment = moment
        self.draw()

    def on_lines_pointed(self) -> None:
        self.query_one(Keys).offer(self.offered)

    def on_lines_chosen(self) -> None:
        self.kgops.action_open()

    def title_row(self, width: int) -> Row:
        seen = self._moment.overview
        right = _counted(seen) if seen is not None else ""
        between = [Piece("paused", "warn")] if self.kgops.feed.paused else []
        return title(f"kgops · {self._host}", right, width, *between)

    def draw(self) -> None:
        body = self.query_one("#body", Lines)
        body.show(dashboard_page.rows(self._moment, self.size.width))
        self.show_title()


def _counted(seen: Overview) -> str:
    parts = [f"{len(seen.running)} running"]
    if seen.waiting:
        parts.append(f"{len(seen.waiting)} waiting")
    return " · ".join([*parts, f"{seen.count:,} run{'' if seen.count == 1 else 's'} in all"])
