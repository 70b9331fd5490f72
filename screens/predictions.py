"""Predictions screen: a question to a trained model by name, its ranked answers, and why each is given."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult

from kgops.errors import KgopsError
from kgops.jobs.text import one_line
from kgops.present import asking
from kgops.present.asking import Asking, Question
from kgops.present.explained_run import GraphNames, as_written, completions, read_graph_names
from kgops.present.formats import amount, fitted, padded
from kgops.present.predictions import AnsweredQuestion, PredictedTriple, read_answers
from kgops.present.rows import Column, Columns, Piece, Row, row, text_row, text_rows
from kgops.present.wording import going, state_of
from kgops.supervisor.run_folder import RunFolder
from kgops.workloads.results import is_answered
from screens import run_calls
from screens.actions import ScreenName
from screens.background import begin
from screens.explanation import Explanation
from screens.feed_state import OneRun
from screens.run_screen import RunScreenBase
from screens.widgets.bar import part_bar
from screens.widgets.choices import Choices
from screens.widgets.keys import Keys
from screens.widgets.lines import MORE_BELOW, Lines
from storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgops.cli.session import Session
    from kgops.present.run_detail import RunDetail
    from screens.feed_state import FeedState, Wanted
    from storage.runs import Run

_MOST_ANSWERS = 1000
_BAR, _FIELD = 12, 32  # columns
_OF_QUESTION = "question 1: "


class Predictions(RunScreenBase):
    screen_name: ClassVar[ScreenName] = "predictions"

    def __init__(self, run: Run) -> None:
        """Asks the model of this training run, or of this predict run, whose answers are shown."""
        super().__init__()
        self._run = run
        self._asking: Asking | None = None
        self._names = GraphNames((), ())
        self._question = Question()
        self._answering: Run | None = None  # the predict run of the question
        self._answered: AnsweredQuestion | None = None
        self._detail: RunDetail | None = None  # of that run

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Choices(id="body", cursor=True, panels=True)
        yield Lines(id="answers", cursor=True, panels=True)
        yield Keys()

    def on_mount(self) -> None:
        begin(self, self._open)

    async def _open(self) -> None:
        home, run = self.kgops.home, self._run
        try:
            self._asking = await asyncio.to_thread(asking.model_of, home, run)
            self._question = self._asking.question
            if self._question.is_complete or is_answered(run.workload):
                await self._follow(run)
            self.draw()
            if not self._question.entity:
                self.query_one("#body", Lines).point_at("entity")
            self._names = await asyncio.to_thread(read_graph_names, home, run)
        except (KgopsError, StorageError) as error:
            self.say(f"no names to complete: {error.message}", "warn")
        self.draw()

    # --- overrides ---

    @property
    def wanted(self) -> Wanted:
        return None if self._answering is None else OneRun(self._answering.id)

    @property
    def subject(self) -> Run:
        return self._run

    @property
    def opens(self) -> bool:
        return self._answer is not None and self.focused is self.query_one("#answers")

    def open_chosen(self) -> None:
        answer, asked = self._answer, self._asking
        if answer is not None and asked is not None:
            self._explain(asked, answer)

    def show_state(self, state: FeedState) -> None:
        if self._answering is None or state.wanted != self.wanted or state.detail is None:
            return
        was_running = not self._answering.ended
        self._detail, self._answering = state.detail, state.detail.run
        if was_running and self._answering.ended:
            begin(self, partial(self._read, self._answering))
        self.draw()

    def title_row(self, width: int) -> Row:
        label = one_line(self._run.label, max(width - 40, 12))
        return Row((Piece(f"predictions of {self._run.id} {self._run.workload} {label}", "strong"),))

    def draw(self) -> None:
        body, answers = self.query_one("#body", Lines), self.query_one("#answers", Lines)
        body.show(_question_rows(self._question, body.room))
        width = answers.room
        rows = _answer_rows(self._answered, width) if self._answered else self._hint(width)
        answers.show([*rows, *self._remarks(width)])
        self.show_title()

    def on_lines_pointed(self) -> None:
        self.show_title()

    def on_lines_chosen(self) -> None:
        self.open_chosen() if self.opens else self.action_edit()

    def on_descendant_focus(self) -> None:
        self.show_title()

    def _remarks(self, width: int) -> list[Row]:
        """What the run says of its question, and what it left out."""
        detail, answering = self._detail, self._answering
        if detail is None or answering is None or detail.run.id != answering.id:
            return []
        answers = 0 if self._answered is None else len(self._answered.answers)
        limits = asking.limits_of(detail.job.get(detail.run.workload) or {}, answers)
        return _remark_rows([text for _, text in detail.messages], limits, width)

    def _hint(self, width: int) -> list[Row]:
        run = self._answering
        if run is None:
            ready = "x asks the model: a recorded predict run" if self._question.is_complete else ""
            return [text_row(ready, width, "dim")]
        if not run.ended:
            return text_rows(f"run {run.id} {going(run)}", width, "dim")
        if run.state == "succeeded":
            return [text_row(f"reading the answers of run {run.id}", width, "dim")]
        return text_rows(f"run {run.id} {state_of(run)}: {run.reason or ''}", width, "bad")

    @property
    def _answer(self) -> PredictedTriple | None:
        key = self.query_one("#answers", Lines).key
        answers = self._answered.answers if self._answered is not None else ()
        return answers[key] if isinstance(key, int) and key < len(answers) else None

    # --- key actions ---

    def action_edit(self) -> None:
        """Types a name; Tab completes it. Behind an entity comes the relation."""
        key = self.query_one("#body", Lines).key
        if key == "asked":
            self.action_more()
            return
        field, names = (
            ("relation", self._names.relations) if key == "relation" else ("entity", self._names.entities)
        )

        def filled(text: str) -> None:
            name = as_written(text, names)
            changed = replace(self._question, relation=name)
            self._change(changed if key == "relation" else replace(self._question, entity=name))
            self._warn_of_unknown(name, names)
            if name in names and not self._question.relation:
                self.query_one("#body", Lines).point_at("relation")
                self.action_edit()

        now: str = getattr(self._question, field)
        self.query_one("#body", Choices).enter(key, now, filled, partial(completions, names=names))

    def _warn_of_unknown(self, name: str, names: Sequence[str]) -> None:
        """A label or an id may be meant, which are not listed here: asking checks the name before a run starts."""
        if not name or not names or name in names or name.isdecimal():
            return
        near = ", ".join(one_line(one, 30) for one in completions(name, names)[:3])
        self.say(f"no name is {one_line(name, 30)!r}{f'; did you mean {near}?' if near else ''}", "bad")

    def action_more(self) -> None:
        self._change(replace(self._question, asks_heads=not self._question.asks_heads))

    def action_less(self) -> None:
        self.action_more()

    def action_other_list(self) -> None:
        self.focus_next()

    def action_ask(self) -> None:
        """Shows the answers of an earlier run, else starts a run. Asked twice, it is one run."""
        if self._asking is None or not self._question.is_complete:
            self.say("choose an entity and a relation first", "warn")
        else:
            begin(self, partial(self._ask, self._asking, self._question, run_calls.start_or_find))

    def _change(self, question: Question) -> None:
        if question == self._question:
            return
        self._question, self._answering, self._answered = question, None, None
        self.draw()
        if self._asking is not None and question.is_complete:
            begin(self, partial(self._ask, self._asking, question, run_calls.find), instead="earlier")

    # --- in threads ---

    async def _ask(self, asked: Asking, question: Question, by: run_calls.ByJob) -> None:
        def in_session(session: Session) -> Run | None:
            return by(session, asking.predict_job(asked.model, question))

        run = await self.kgops.carry_out(in_session)
        if run is not None and question == self._question:
            await self._follow(run)

    async def _follow(self, run: Run) -> None:
        """Shows the answers of a run, or waits for its end."""
        self._answering = run
        self.ask_feed()
        self.draw()
        if run.ended:
            await self._read(run)

    async def _read(self, run: Run) -> None:
        results = RunFolder(self.kgops.home.runs / run.folder).results
        found = await asyncio.to_thread(read_answers, results, questions=2, answers=_MOST_ANSWERS)
        if self._answering is not None and self._answering.id == run.id and found:
            self._answered = found[0]
            if not self._question.is_complete:  # of a file
                self._question = asking.question_of(found[0])
            if len(found) > 1:
                self.say(
                    f"the first question of run {run.id}; its results/predictions.csv has all of them", "dim"
                )
            self.query_one("#answers", Lines).focus()
        self.draw()

    def _explain(self, asked: Asking, answer: PredictedTriple) -> None:
        is_head = self._answered is not None and self._answered.asked == "head"

        def explain(session: Session) -> Run | None:
            job = asking.explain_job(asked.model, answer.labels, asks_head=is_head)
            return run_calls.start_or_find(session, job)

        self.start_and_open(explain, Explanation)


def _question_rows(question: Question, width: int) -> list[Row]:
    head, relation, tail = question.triple
    entity = "tail" if question.asks_heads else "head"
    asked = f"{'head' if question.asks_heads else 'tail'}: {head} · {relation} · {tail}"
    values = (
        ("asked", "asked", asked),
        ("entity", entity, question.entity),
        ("relation", "relation", question.relation),
    )
    rows = [text_row("QUESTION", width, "head")]
    for key, label, value in values:
        room = width - 12
        text = padded(
            fitted(one_line(value or "⏎ to type a name, a label or an id"), room), min(room, _FIELD)
        )
        tone = "strong" if key == "asked" else "field"
        rows.append(row([Piece(f"{label:<8}", "dim"), Piece(text, tone)], key=key))
    return rows


def _remark_rows(messages: Sequence[str], limits: str, width: int) -> list[Row]:
    """What the worker noted of the first question, which is the one shown; and what its answers are limited to."""
    noted = [text.removeprefix(_OF_QUESTION) for text in messages if text.startswith(_OF_QUESTION)]
    rows = [row for text in noted for row in text_rows(text, width, "warn")]
    return rows + ([text_row(f"answers: {limits}", width, "dim")] if limits else [])


def _answer_rows(answered: AnsweredQuestion, width: int) -> list[Row]:
    """New ones are marked; keys are their places in the list."""
    columns = Columns(
        (
            Column("ANSWERS", 7, right=True),
            Column("answer", 24, grows=True),
            Column("known", 6),
            Column("score", 8, right=True),
            Column("probability", 11, right=True),
            Column("  ", _BAR),
        ),
        width - len(MORE_BELOW),  # beside numbers, not over them
    )
    rows = [columns.heading()]
    for place, one in enumerate(answered.answers):
        is_new = one.known.startswith("new")
        name = one.head if answered.asked == "head" else one.tail
        score = "n/a" if one.score is None else f"{one.score:+.3f}"
        cells = (
            Piece(amount(one.rank)),
            Piece(name, "good" if is_new else "text"),
            Piece(one.known, "good" if is_new else "dim"),
            Piece(score),
            Piece(amount(one.probability), "dim"),
            part_bar(one.probability or 0.0, _BAR, "data"),
        )
        rows.append(columns.row(cells, key=place))
    return rows
