"""Dashboard screen: GPUs, alerts, running, waiting and recently ended runs."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult

from kgops.jobs.text import one_line
from screens import dashboard_page
from screens.actions import ScreenName
from screens.feed import DASHBOARD, FeedState
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
    screen_name: ClassVar[ScreenName] = "dashboard"

    def __init__(self) -> None:
        super().__init__()
        self._state = FeedState()
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
        key, overview = self.query_one("#body", Lines).key, self._state.overview
        if overview is None:
            return None
        shown = (
            *(one.run for one in overview.running),
            *overview.waiting,
            *(one.run for one in overview.recent),
        )
        return next((run for run in shown if run.id == key), None)

    def show_state(self, state: FeedState) -> None:
        if state.wanted != DASHBOARD:
            return  # for a screen in front of this one
        if state.gpus is None and self._state.gpus is not None:
            state = replace(state, gpus=self._state.gpus, gpu_problem=self._state.gpu_problem)
        self._state = state
        self.draw()

    def on_lines_pointed(self) -> None:
        self.query_one(Keys).offer(self.offered)

    def on_lines_chosen(self) -> None:
        self.kgops.action_open()

    def title_row(self, width: int) -> Row:
        overview = self._state.overview
        right = _counts(overview) if overview is not None else ""
        between = [Piece("paused", "warn")] if self.kgops.feed.paused else []
        return title(f"kgops · {self._host}", right, width, *between)

    def draw(self) -> None:
        body = self.query_one("#body", Lines)
        body.show(dashboard_page.rows(self._state, self.size.width))
        self.show_title()


def _counts(overview: Overview) -> str:
    parts = [f"{len(overview.running)} running"]
    if overview.waiting:
        parts.append(f"{len(overview.waiting)} waiting")
    return " · ".join([*parts, f"{overview.count:,} run{'' if overview.count == 1 else 's'} in all"])
