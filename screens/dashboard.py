"""Dashboard screen: GPUs, alerts, running, waiting and recently ended runs."""

from __future__ import annotations

import socket
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal

from kgops.jobs.text import one_line
from kgops.present.rows import Row, text_row, title
from screens.actions import ScreenName
from screens.beside import HasPane
from screens.feed_state import DASHBOARD, FeedState
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from kgops.present.gpus import GpuUsage
    from kgops.present.overview import Overview
    from kgops.supervisor.alerts import Alert
    from screens.copying import Copyable
    from screens.feed_state import Wanted
    from storage.runs import Run

_HEADINGS = 4  # of columns, which take a line each in panels


class Dashboard(HasPane):
    screen_name: ClassVar[ScreenName] = "dashboard"

    def __init__(self) -> None:
        super().__init__()
        self._state = FeedState()
        self._has_pointed = self._all_alerts = False
        self._host = one_line(socket.gethostname(), 40)

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        with Horizontal(id="with-pane"):
            yield Lines(id="body", cursor=True, panels=True).add_class("beside-pane")
            yield Lines(id="pane", panels=True)
        yield Keys()

    def on_mount(self) -> None:
        self.draw()  # for the first frame, which Textual paints before its Resize arrives

    @property
    def wanted(self) -> Wanted:
        return DASHBOARD

    @property
    def subject(self) -> Run | None:
        key, overview = self.query_one("#body", Lines).key, self._state.overview
        if self._alert is not None:
            return self._alert.run
        if overview is None:
            return None
        shown = (
            *(one.run for one in overview.running),
            *overview.waiting,
            *(one.run for one in overview.recent),
        )
        return next((run for run in shown if run.id == key), None)

    def show_state(self, state: FeedState) -> None:
        if self.shows_beside(state) or state.wanted != DASHBOARD:
            return  # for a screen in front of this one
        if state.gpus is None and self._state.gpus is not None:
            state = replace(state, gpus=self._state.gpus, gpu_problem=self._state.gpu_problem)
        self._state = state
        self.draw()

    def on_lines_pointed(self) -> None:
        self.query_one(Keys).offer(self.offered)
        self.point_pane()
        if self.subject is None:  # of GPUs all is known
            self.draw_pane()

    def on_lines_chosen(self) -> None:
        self.open_chosen()

    @property
    def opens(self) -> bool:
        return self.query_one("#body", Lines).key is not None

    def open_chosen(self) -> None:
        key = self.query_one("#body", Lines).key
        if isinstance(key, tuple) and key[0] == "start":
            self.action_begin(key[1])
        elif isinstance(key, tuple) and key[0] == "alerts":
            self._all_alerts = not self._all_alerts
            self.draw()
        elif isinstance(key, tuple) and key[0] == "gpu":
            self.action_gpu(key[1])
        elif self._alert is not None and self._alert.gpu is not None:
            self.action_gpu(self._alert.gpu)
        else:
            super().open_chosen()

    @property
    def _alert(self) -> Alert | None:
        """The alert or note under the cursor."""
        key = self.query_one("#body", Lines).key
        notes = self._state.overview.notes if self._state.overview is not None else ()
        return next((one for one in (*self._state.alerts, *notes) if ("alert", one.name) == key), None)

    @property
    def _gpu(self) -> GpuUsage | None:
        """The GPU or slice under the cursor."""
        key = self.query_one("#body", Lines).key
        usages = (part for usage in self._state.gpus or () for part in (usage, *usage.slices))
        return next((one for one in usages if ("gpu", one.reading.index, one.label) == key), None)

    @property
    def gpu_here(self) -> str | None:
        if self._gpu is None:
            return None
        from screens.dashboard_gpus import requestable

        return requestable(self._gpu, self._state)

    @property
    def copyable(self) -> list[Copyable]:
        if self._gpu is None:
            return super().copyable
        from screens.copying import of_gpu

        return of_gpu(self._gpu)

    def other_pane(self, width: int, height: int) -> list[Row]:
        """A GPU under the cursor, or that of an alert."""
        of_alert = self._alert.gpu if self._alert is not None else None
        whole = (one for one in self._state.gpus or () if one.reading.index == of_alert)
        usage = self._gpu or next(whole, None)
        if usage is None:
            return super().other_pane(width, height)
        from screens import gpu

        head = text_row(f"GPU {usage.label} {one_line(usage.reading.name or 'n/a')}", width, "head")
        return [head, *gpu.page(usage, self._state, width, height - 1)]

    def action_acknowledge(self) -> None:
        """Acknowledges the alert under the cursor; on other rows, asks to acknowledge all."""
        if self._alert is not None:
            self._acknowledge([self._alert.name])
            return
        names = [alert.name for alert in self._state.alerts]
        if not names:
            self.kgops.say("there are no alerts")
            return

        self.kgops.ask(f"acknowledge all {len(names)} alerts?", partial(self._acknowledge, names))

    def _acknowledge(self, names: list[str]) -> None:
        from screens import run_calls

        self._start(lambda session: run_calls.acknowledge(session, names))

    def action_begin(self, what: str) -> None:
        """What the first screen of an empty home offers."""
        from kgops.cli.tui import TOUR

        if what == "demo":
            from screens import run_calls

            self.start_and_open(run_calls.start_demo)
        elif what == "tour":
            self.app.exit(return_code=TOUR)
        else:
            self.kgops.open_new_run()

    def gpus(self) -> list[tuple[int, str]]:
        """Numbers and names."""
        return [
            (usage.reading.index, one_line(usage.reading.name or "", 60)) for usage in self._state.gpus or ()
        ]

    def action_gpu(self, number: int = 0) -> None:
        if all(usage.reading.index != number for usage in self._state.gpus or ()):
            self.kgops.say(f"there is no GPU {number}", "warn")
            return
        from screens.gpu import GpuScreen

        self.app.push_screen(GpuScreen(number, self._state))

    def title_row(self, width: int) -> Row:
        overview = self._state.overview
        right = _counts(overview) if overview is not None else ""
        return title(f"kgops · {self._host}", right, width)

    def _point_at_first(self, body: Lines) -> None:
        """The cursor opens on an alert, a first step, a GPU or an ended run, else on what runs."""
        if self._has_pointed or self._state.wanted is None:
            return
        keys = [row.key for row in body.rows if row.key is not None]
        active = {one.run.id for one in self._state.overview.running} if self._state.overview else set()
        alerts = [key for key in keys if isinstance(key, tuple) and key[0] in ("alert", "start")]
        body.point_at(next((key for key in (*alerts, *keys) if key not in active), keys[0] if keys else None))
        self._has_pointed = self._state.overview is not None or self._state.error_text is not None

    def draw(self) -> None:
        body = self.query_one("#body", Lines)
        height = body.lines_of_room - (_HEADINGS if body.draws_panels else 0)
        body.show(_rows(self._state, body.room, height, self._all_alerts))
        self._point_at_first(body)
        self.point_pane()
        self.draw_pane()
        self.show_title()


def _rows(state: FeedState, width: int, height: int, all_alerts: bool) -> list[Row]:
    if state.wanted is None:  # the first picture, for which the page is not yet imported
        return [text_row("reading GPUs …", width, "dim")]
    from screens import dashboard_page

    return dashboard_page.rows(state, width, height, all_alerts=all_alerts)


def _counts(overview: Overview) -> str:
    parts = [f"{len(overview.running)} running"]
    if overview.waiting:
        parts.append(f"{len(overview.waiting)} waiting")
    return " · ".join([*parts, f"{overview.count:,} run{'' if overview.count == 1 else 's'} in all"])
