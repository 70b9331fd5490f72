"""Explanation screen: what an explain run found, followed while it runs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding

from kgops.errors import KgopsError
from kgops.jobs.text import one_line
from kgops.present.explained_run import (
    ExplainedRun,
    prediction_of,
    read_explained_run,
    verdict_of,
)
from kgops.present.explanation_pictures import text_lines
from kgops.present.explanations import ExplainedPrediction
from kgops.present.formats import amount
from kgops.present.result_sections import facts, paths, retrained
from kgops.present.rows import BLANK, Piece, Row, drawn, joined, stacked, text_row, text_rows
from kgops.present.wording import going, state_of
from screens.actions import ScreenName
from screens.background import begin
from screens.feed_state import OneRun
from screens.run_screen import RunScreenBase
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgops.present.explanations import ExplainedPrediction
    from screens.feed_state import FeedState, Wanted
    from storage.runs import Run

_DRAWN = {"━": "data", "╌": "warn", **dict.fromkeys("─│┌┐└┘├┤┬┴┼▲▼◀▶", "dim")}
_MOST_LISTED = 6  # predictions in sight above the details
_MOST_PATHS = 3


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
        self._is_read = False
        self._messages: Sequence[str] = ()  # of the worker

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield PredictionList(id="body", cursor=True, panels=True)
        yield Lines(id="detail", scrolls=True, panels=True)
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
            self._messages = [text for _, text in state.detail.messages]
            self._read_when_ended()
            self.draw()

    def title_row(self, width: int) -> Row:
        run = self._run
        label = one_line(run.label, max(width - 40, 12))
        return Row((Piece(f"explanation {run.id} {label}", "strong"), Piece(f"  {state_of(run)}", "dim")))

    def action_other_list(self) -> None:
        self.focus_next()

    def action_verify(self) -> None:
        """In a run of its own."""
        from screens import run_calls

        run, explained = self._run, self._explained
        if not run.ended or (explained is not None and explained.verification is not None):
            self.say(
                "the explanations are verified already" if run.ended else "the run has not ended", "warn"
            )
            return

        question = f"retrain the model a few times, to verify the explanations of run {run.id}?"
        verify = partial(self.start_and_open, lambda session: run_calls.verify(session, run), Explanation)
        self.kgops.ask(question, verify)

    def on_lines_pointed(self) -> None:
        self.draw()

    def draw(self) -> None:
        body, detail = self.query_one("#body", Lines), self.query_one("#detail", Lines)
        width = detail.room
        explained = self._explained
        if explained is None or not explained.predictions:
            body.styles.height = 3
            body.show(self._waiting(width))
            detail.show([])
        else:
            most = _MOST_LISTED if not self.has_class("short") else _MOST_LISTED // 2
            body.styles.height = min(len(explained.predictions), most) + 1 + body.draws_panels
            body.show(_prediction_rows(explained, width))
            one = self._prediction
            notes = _notes_of(one, self._messages) if one else []
            detail.show(_detail_rows(explained, one, width, notes) if one else [])
        self.show_title()

    @property
    def _prediction(self) -> ExplainedPrediction | None:
        key = self.query_one("#body", Lines).key
        listed = self._explained.predictions if self._explained is not None else ()
        return next((one for one in listed if one.number == key), None)

    def _waiting(self, width: int) -> list[Row]:
        run = self._run
        if not run.ended:
            return text_rows(going(run), width, "dim")
        if self._explained is None:
            return [text_row("reading explanations", width, "dim")]
        said = run.reason or "the run has no explanations"
        return [text_row(said, width, "bad"), text_row("⏎ opens the run, with its log", width, "dim")]


def _prediction_rows(explained: ExplainedRun, width: int) -> list[Row]:
    more = f"  the first {amount(len(explained.predictions))}; kgops report has them all"
    heading = (Piece("PREDICTIONS", "head"), Piece(more if explained.has_more else "", "dim"))
    rows = [Row(heading)]
    for one in explained.predictions:
        tone = "warn" if one.trouble else "text"
        words = f"{one_line(one.number):>3}  {prediction_of(one)}"
        rows.append(text_row(f"{words}  {one_line(one.known)}", width, tone, key=one.number))
    return rows


def _notes_of(one: ExplainedPrediction, messages: Sequence[str]) -> list[str]:
    """What the worker noted of this prediction; its verdict says what trouble there was."""
    own = f"prediction {one.number}: "
    return [] if one.trouble else [text.removeprefix(own) for text in messages if text.startswith(own)]


def _detail_rows(
    explained: ExplainedRun,
    one: ExplainedPrediction,
    width: int,
    notes: Sequence[str],
) -> list[Row]:
    sections = [_verdict(one, width)]
    sections += [text_rows(text, width, "warn") for text in notes]
    if one.facts:
        drawing = [_drawn(line) for line in text_lines(explained.graph(one), max(width, 40))]
        sections += [[*drawing, BLANK], drawn(facts(one), width), drawn(paths(one, _MOST_PATHS), width)]
    found = explained.verification
    said = text_rows(found.sentence, width, "dim") if found is not None else []
    sections.append([*drawn(retrained(found, one), width), *said])
    return stacked(sections)


def _drawn(line: str) -> Row:
    """The triples of the set stand out, the prediction is dotted, and other edges are faint."""
    return Row(tuple(joined((char, _DRAWN.get(char, "text")) for char in line)))


def _verdict(one: ExplainedPrediction, width: int) -> list[Row]:
    tone = "warn" if one.trouble else "strong" if one.lost else "text"
    return text_rows(verdict_of(one), width, tone)
