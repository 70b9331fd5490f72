"""One run: how far it is, its curves, options, attempts, what it was asked and what it left behind, and its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding

from kgops.jobs.text import one_line
from kgops.supervisor.run_folder import RunFolder
from screens import run_page
from screens.actions import Place as Where
from screens.feed import Moment, OneRun
from screens.rows import Piece, Row
from screens.run_actions import ChangesRuns
from screens.run_log import RunLog
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from screens.wording import sign_of, since, state_of, took

if TYPE_CHECKING:
    from kgops.views.run_detail import RunDetail
    from screens.feed import Wanted
    from storage.runs import Run

__all__ = ["RunScreen"]


class RunScreen(ChangesRuns):
    place: ClassVar[Where] = "run"
    BINDINGS = [  # noqa: RUF012
        Binding("n", "next_hit(1)", show=False),
        Binding("N", "next_hit(-1)", show=False),
    ]

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._detail: RunDetail | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="body", scrolls=True)
        yield RunLog(RunFolder(self.kgops.home.runs / self._run.folder).log)
        yield Keys()

    @property
    def log_part(self) -> RunLog:
        return self.query_one(RunLog)

    @property
    def wanted(self) -> Wanted:
        return OneRun(self._run.id)

    @property
    def subject(self) -> Run:
        return self._run

    def show_moment(self, moment: Moment) -> None:
        if moment.of != self.wanted:
            return
        if moment.detail is None:
            self.say(moment.trouble or f"run {self._run.id} is no longer in the record", "bad")
            return
        self._detail, self._run = moment.detail, moment.detail.run
        self.draw()

    def action_log(self) -> None:
        """All the room it can get, or only the lower part as before."""
        log = self.log_part
        log.toggle_class("tall")
        log.lines.focus() if log.has_class("tall") else self.query_one("#body", Lines).focus()

    def action_search(self) -> None:
        self.log_part.search()

    def action_level(self) -> None:
        self.log_part.turn_level()

    def action_next_hit(self, step: int) -> None:
        self.log_part.next_hit(step)

    def title_row(self, width: int) -> Row:
        run = self._run
        paused = [Piece("  paused", "warn")] if self.kgops.feed.paused else []
        when = took(run) if run.ended else since(run)
        sign = sign_of(run)
        words = f"{run.id} {run.workload} {one_line(run.label, max(width - 50, 12))}"
        tone = "text" if sign.tone == "accent" else sign.tone
        return Row(
            (
                Piece(words, "strong"),
                Piece("  "),
                sign,
                Piece(f" {state_of(run)}", tone),
                Piece(f"  {when}", "dim"),
                *paused,
            )
        )

    def draw(self) -> None:
        width = self.size.width
        if self._detail is not None:
            self.query_one("#body", Lines).show(run_page.rows(self._detail, width))
        self.log_part.grows(not self._run.ended)
        self.show_title()
