"""Chart screen: one metric of one to eight runs over the whole screen, with the values at a cursor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding

from kgops.jobs.text import one_line
from kgops.present.chart import MOST_RUNS
from kgops.present.rows import Row, text_row, title
from screens import chart_page
from screens.actions import ScreenName
from screens.chart_page import SMOOTHINGS, Plot, View
from screens.feed_state import FeedState, OneCurve
from screens.run_screen import RunScreenBase
from screens.widgets.curve_panels import display_name
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from kgops.present.chart import ChartRun
    from screens.feed_state import Wanted
    from storage.runs import Run

_PAGE = 10  # points


class ChartScreen(RunScreenBase):
    screen_name: ClassVar[ScreenName] = "chart"
    BINDINGS = [  # noqa: RUF012
        Binding("home,g", "edge(False)", show=False),
        Binding("end,G", "edge(True)", show=False),
        Binding("pageup", "move(-1)", show=False),
        Binding("pagedown", "move(1)", show=False),
    ]

    def __init__(self, name: str, numbers: tuple[int, ...]) -> None:
        super().__init__()
        self._metric, self._numbers = name, numbers
        self._runs: tuple[ChartRun, ...] = ()
        self._view = View()
        self._error: str | None = None
        self._is_read = False
        self._added: int | None = None  # a number that a person typed and the feed has not answered
        self._kept: Plot | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="body")
        yield Keys()

    # --- overrides ---

    @property
    def wanted(self) -> Wanted:
        return OneCurve(self._metric, self._numbers)

    @property
    def subject(self) -> Run | None:
        return self._runs[self._chosen].run if self._runs else None

    def show_state(self, state: FeedState) -> None:
        if state.wanted != self.wanted:
            return
        self._error, self._is_read = state.error_text, True
        self._runs = self._runs if state.error_text else state.chart
        self._take_back_unknown()
        self.draw()

    def title_row(self, width: int) -> Row:
        view, plot = self._view, self._plot
        words = [f"over {plot.over}" if plot.over == "time" else f"over {plot.over}s"]
        words += ["log y"] if view.log else []
        words += [f"smoothed by {view.smoothing:g}, the curve itself faint"] if view.smoothing else []
        numbers = ", ".join(map(str, self._numbers))
        of = f"run{'' if len(self._numbers) == 1 else 's'} {numbers}"
        return title(f"{display_name(self._metric)} of {of}", " · ".join(words), width)

    def draw(self) -> None:
        body, width = self.query_one("#body", Lines), self.size.width
        if self._error is not None:
            body.show([text_row(self._error, width, "bad")])
        elif not self._is_read:
            body.show([text_row("reading the curve …", width, "dim")])
        else:
            known = {one.run.id for one in self._runs}
            missing = [number for number in self._numbers if number not in known]
            rows = chart_page.rows(self._metric, self._plot, width, body.size.height, missing)
            body.show(rows)
        self.show_title()

    @property
    def _plot(self) -> Plot:
        """Kept while only the cursor moves: a key has to answer at once, also over eight long curves."""
        if self._kept is None or not self._kept.is_for(self._runs, self._view, self.size.width):
            self._kept = Plot(self._runs, self._view, self.size.width)
        self._kept.view = self._view
        return self._kept

    @property
    def _chosen(self) -> int:
        return min(self._view.chosen, len(self._runs) - 1)

    def _look(self, **changes: object) -> None:
        self._view = replace(self._view, **changes)  # type: ignore[arg-type]
        self.draw()

    # --- key actions ---

    def action_next_point(self) -> None:
        self._look(cursor=self._plot.moved(1))

    def action_point_before(self) -> None:
        self._look(cursor=self._plot.moved(-1))

    def action_move(self, pages: int) -> None:
        self._look(cursor=self._plot.moved(pages * _PAGE))

    def action_edge(self, last: bool) -> None:
        plot = self._plot
        self._look(cursor=None if last else plot.first)

    def action_log_y(self) -> None:
        self._look(log=not self._view.log)

    def action_smooth(self) -> None:
        after = SMOOTHINGS.index(self._view.smoothing) + 1
        self._look(smoothing=SMOOTHINGS[after % len(SMOOTHINGS)])

    def action_x_axis(self) -> None:
        """The cursor goes to the newest point: its place on another axis differs for each run."""
        plot = self._plot
        if len(plot.axes) < 2:
            self.say(f"these points are known over {plot.over} alone", "warn")
            return
        self._look(over=plot.axes[(plot.axes.index(plot.over) + 1) % len(plot.axes)], cursor=None)

    def action_next_run(self) -> None:
        self._choose(1)

    def action_run_before(self) -> None:
        self._choose(-1)

    def _choose(self, by: int) -> None:
        if self._runs:
            self._look(chosen=(self._chosen + by) % len(self._runs))

    # --- runs ---

    def action_add_run(self) -> None:
        if len(self._numbers) >= MOST_RUNS:
            self.say(f"a chart has at most {MOST_RUNS} runs", "warn")
            return
        self.kgops.prompt(f"add {one_line(self._metric, 40)} of which run? its number", self._add)

    def _add(self, words: str) -> None:
        if not words.isdecimal() or len(words) > 18:
            self.say(f"{one_line(words, 30)} is not the number of a run", "bad")
        elif int(words) in self._numbers:
            self.say(f"run {int(words)} is in this chart already", "warn")
        else:
            self._added = int(words)
            self._show_runs((*self._numbers, int(words)))

    def _take_back_unknown(self) -> None:
        """A run that was deleted meanwhile stays, and is named; a number that is none of the record does not."""
        added, self._added = self._added, None
        if added is not None and self._error is None and added not in {one.run.id for one in self._runs}:
            self.say(f"run {added} is not in the record", "bad")
            self._show_runs(tuple(number for number in self._numbers if number != added))

    def action_remove_run(self) -> None:
        run = self.subject
        if run is None or len(self._numbers) < 2:
            self.say("the last run of a chart stays", "warn")
            return
        self._view = replace(self._view, chosen=0)
        self._show_runs(tuple(number for number in self._numbers if number != run.id))

    def _show_runs(self, numbers: tuple[int, ...]) -> None:
        self._numbers = numbers
        self.ask_feed()
        self.show_title()
