"""Run screen: five pages about one run, the first with its log below."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding

from kgops.jobs.text import one_line
from kgops.present.formats import value_text
from kgops.present.rows import Piece, Row
from kgops.present.wording import attempt_of, sign_of, since, state_of, took
from kgops.supervisor.run_folder import RunFolder
from screens import run_page
from screens.actions import ScreenName
from screens.background import begin
from screens.copying import Copyable
from screens.feed_state import FeedState, OneRun
from screens.marked_chart import MarksCharts
from screens.run_actions import ChangesRuns
from screens.run_log import RunLog
from screens.run_screen import RunScreenBase
from screens.widgets.curve_panels import chart_names
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from pathlib import Path

    from kgops.present.run_detail import RunDetail
    from screens.feed_state import Wanted
    from storage.runs import Run


_NEXT = {
    "app.predictions": "ask the model",
    "app.influences": "trace a prediction",
    "screen.evaluate": "evaluate",
    "screen.resume": "resume",
    "screen.again": "again",
    "app.new": "change and start",
}


class RunView(RunScreenBase):
    """Pages of a run. A subclass says where they and the log come from."""

    tab: run_page.Tab = "curves"
    chart: str | None = None  # the marked one, where a screen marks charts
    BINDINGS = [  # noqa: RUF012
        Binding("tab", "turn(1)", show=False),
        Binding("shift+tab", "turn(-1)", show=False),
        Binding("right_square_bracket", "next_hit(1)", show=False),
        Binding("left_square_bracket", "next_hit(-1)", show=False),
    ]

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._detail: RunDetail | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="tabs")
        yield Lines(id="body", scrolls=True, panels=True)
        yield RunLog(self.log_path)
        yield Keys()

    @property
    def run_log(self) -> RunLog:
        return self.query_one(RunLog)

    @property
    def log_path(self) -> Path:
        raise NotImplementedError

    @property
    def run_name(self) -> str:
        return str(self._run.id)

    @property
    def copyable(self) -> list[Copyable]:
        texts = super().copyable
        command = self._detail.job.get("exec", {}).get("command") if self._detail is not None else None
        if command:
            texts.append(Copyable("e", "executed command", value_text(command)))
        return texts

    def action_tab(self, tab: run_page.Tab) -> None:
        self.tab = tab
        body, log = self.query_one("#body", Lines), self.run_log
        body.display, log.display = tab != "log", tab in ("curves", "log")
        log.set_class(tab == "log", "alone")
        (log.lines if tab == "log" else body).focus()
        self.draw()
        body.action_edge(False)

    def action_turn(self, by: int = 1) -> None:
        at = run_page.TABS.index(self.tab) + by
        self.action_tab(run_page.TABS[at % len(run_page.TABS)])

    def action_log(self) -> None:
        self.action_tab("curves" if self.tab == "log" else "log")

    def action_search(self) -> None:
        if not self.run_log.display:
            self.action_tab("log")
        self.run_log.search()

    def action_level(self) -> None:
        self.run_log.next_level()

    def action_next_hit(self, step: int) -> None:
        self.run_log.next_hit(step)

    def title_row(self, width: int) -> Row:
        run = self._run
        when = took(run) if run.ended else since(run)
        sign = sign_of(run)
        words = f"{self.run_name} {run.workload} {one_line(run.label, max(width - 50, 12))}"
        tone = "text" if sign.tone == "accent" else sign.tone
        return Row(
            (
                Piece(words, "strong"),
                Piece("  "),
                sign,
                Piece(f" {state_of(run)}", tone),
                Piece("".join(f"  {text}" for text in (attempt_of(run), when) if text), "dim"),
            )
        )

    @property
    def next_steps(self) -> list[tuple[str, str, str]]:
        """What a person does with a run that has ended: key, words and action."""
        if not self._run.ended:
            return []
        has_model = self.allows("app.predictions")
        offered = [one for one in self.offered if has_model or one.does != "app.influences"]
        return [(one.sign, _NEXT[one.does], one.does) for one in offered if one.does in _NEXT]

    def draw(self) -> None:
        if self._detail is not None:
            body = self.query_one("#body", Lines)
            page = run_page.rows(
                self._detail, body.room, body.lines_of_room, self.tab, self.chart, self.next_steps
            )
            body.show(page)
            self.query_one("#tabs", Lines).show([run_page.tabs(self._detail, self.tab)])
        self.run_log.grows(not self._run.ended)
        self.show_title()


class RunScreen(RunView, ChangesRuns, MarksCharts):
    screen_name: ClassVar[ScreenName] = "run"

    @property
    def log_path(self) -> Path:
        return RunFolder(self.kgops.home.runs / self._run.folder).log

    @property
    def wanted(self) -> Wanted:
        return OneRun(self._run.id)

    @property
    def subject(self) -> Run:
        return self._run

    def open_new_run(self) -> None:
        """With the job of this run in its fields."""
        begin(self.app, self._change_job)

    async def _change_job(self) -> None:
        from screens import run_calls  # imports half of kgops

        run = self._run
        found = await self.kgops.carry_out(lambda session: run_calls.draft_of(session, run))
        if found is None:
            return
        draft, left_out = found
        remark = f"no fields for {left_out}; `a` starts the whole job again" if left_out else ""
        self.kgops.open_draft(draft, remark)

    def action_evaluate(self) -> None:
        from screens import run_calls

        run = self._run
        self.start_and_open(lambda session: run_calls.evaluate(session, run))

    def show_state(self, state: FeedState) -> None:
        if state.wanted != self.wanted:
            return
        if state.detail is None:
            self.say(state.error_text or f"run {self._run.id} is no longer in the record", "bad")
            return
        self._detail, self._run = state.detail, state.detail.run
        self.draw()

    def draw(self) -> None:
        charts = self.charts
        self.chart = self.chart if self.chart in charts else next(iter(charts), None)
        super().draw()

    # --- charts ---

    @property
    def charts(self) -> list[str]:
        if self._detail is None or self.tab not in ("curves", "memory"):
            return []
        return chart_names(self._detail, run_page.MEMORY if self.tab == "memory" else "")

    @property
    def charted_runs(self) -> tuple[int, ...]:
        return (self._run.id,)

    @property
    def opens(self) -> bool:
        return bool(self.charts)

    def open_chosen(self) -> None:
        if self.chart is not None:
            self.zoom(self.chart)
