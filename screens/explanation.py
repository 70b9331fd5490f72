"""Explanation screen: what an explain run found, followed while it runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding

from kgops.errors import KgopsError
from kgops.jobs.text import one_line
from kgops.views.explained_run import ExplainedRun, read_explained_run
from screens import explanation_page
from screens.actions import ScreenName
from screens.driver import begin
from screens.explanation_page import Found
from screens.feed import OneRun
from screens.rows import Piece, Row, text_row
from screens.run_screen import RunScreenBase
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from screens.wording import progress_of, state_of
from storage.errors import StorageError

if TYPE_CHECKING:
    from kgops.views.explanations import ExplainedPrediction
    from screens.feed import FeedState, Wanted
    from storage.runs import Run

__all__ = ["Explanation"]

_MOST_LISTED = 6  # predictions in sight above the details


class PredictionList(Lines):
    """Of the explained predictions. Its keys for pages and ends scroll the details, which are longer."""

    BINDINGS = [  # noqa: RUF012
        Binding("g", "edge_of_details(False)", show=False),
        Binding("G", "edge_of_details(True)", show=False),
    ]

    @property
    def _details(self) -> Lines:
        return self.screen.query_one("#detail", Lines)

    def action_page(self, by: int) -> None:
        self._details.action_page(by)

    def action_edge_of_details(self, last: bool) -> None:
        self._details.action_edge(last)


class Explanation(RunScreenBase):
    screen_name: ClassVar[ScreenName] = "explanation"

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._explained: ExplainedRun | None = None
        self._found: Found | None = None
        self._is_read = False

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield PredictionList(id="body", cursor=True)
        yield Lines(id="detail", scrolls=True)
        yield Keys()

    def on_mount(self) -> None:
        self._read_when_ended()

    def _read_when_ended(self) -> None:
        if self._run.ended and not self._is_read:
            self._is_read = True
            begin(self, self._read)

    async def _read(self) -> None:
        try:
            self._explained = await asyncio.to_thread(read_explained_run, self.kgops.home, self._run)
        except (KgopsError, StorageError) as error:
            self.say(error.message, "bad")
        self.draw()
        await self._search()

    async def _search(self) -> None:
        """Paths and the drawing of the prediction under the cursor."""
        one, explained, width = self._prediction, self._explained, self.size.width
        if one is None or explained is None or self._is_drawn(one):
            return
        self._found = await asyncio.to_thread(explanation_page.draw, explained, one, width)
        self.draw()

    def _is_drawn(self, one: ExplainedPrediction) -> bool:
        return self._found is not None and self._found[:2] == (one.number, self.size.width)

    # --- overrides ---

    @property
    def wanted(self) -> Wanted:
        return OneRun(self._run.id)

    @property
    def subject(self) -> Run:
        return self._run

    def show_state(self, state: FeedState) -> None:
        if state.wanted == self.wanted and state.detail is not None:
            self._run = state.detail.run
            self._read_when_ended()
            self.draw()

    def title_row(self, width: int) -> Row:
        run = self._run
        label = one_line(run.label, max(width - 40, 12))
        return Row((Piece(f"explanation {run.id} {label}", "strong"), Piece(f"  {state_of(run)}", "dim")))

    def action_other_list(self) -> None:
        self.focus_next()

    def on_resize(self) -> None:
        begin(self, self._search, instead="paths")

    def on_lines_pointed(self) -> None:
        self.draw()
        begin(self, self._search, instead="paths")

    def draw(self) -> None:
        width = self.size.width
        body, detail = self.query_one("#body", Lines), self.query_one("#detail", Lines)
        explained = self._explained
        if explained is None or not explained.predictions:
            body.styles.height = 3
            body.show(self._waiting(width))
            detail.show([])
        else:
            most = _MOST_LISTED if not self.has_class("short") else _MOST_LISTED // 2
            body.styles.height = min(len(explained.predictions), most) + 1
            body.show(explanation_page.prediction_rows(explained, width))
            one = self._prediction
            found = self._found if one is not None and self._is_drawn(one) else None
            detail.show(explanation_page.detail_rows(explained, one, found, width) if one else [])
        self.show_title()

    @property
    def _prediction(self) -> ExplainedPrediction | None:
        key = self.query_one("#body", Lines).key
        listed = self._explained.predictions if self._explained is not None else ()
        return next((one for one in listed if one.number == key), None)

    def _waiting(self, width: int) -> list[Row]:
        run = self._run
        if not run.ended:
            return [text_row(f"{state_of(run)}  {progress_of(run)}", width, "dim")]
        if self._explained is None:
            return [text_row("reading explanations", width, "dim")]
        said = run.reason or "the run has no explanations"
        return [text_row(said, width, "bad"), text_row("⏎ opens the run, with its log", width, "dim")]
