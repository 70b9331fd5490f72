"""New run screen: choose workload, data and options, with the plan of the draft below."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult

from kgops.errors import KgopsError
from kgops.hosts import registry
from kgops.jobs.option import Option, word_of
from kgops.present.draft_fields import DRAFT_OPTIONS
from kgops.present.drafts import Draft, can_filter, completions, is_what_if
from kgops.present.rows import Piece, Row, text_row, title
from kgops.present.what_if import Answer, Offers, WhatIf, absent_gpu, step
from kgops.present.wording import error_text
from kgops.workloads.catalog import OPTIONS
from kgops.workloads.registry import WORKLOADS
from screens import copying, new_run_page, new_run_plan, run_calls
from screens.actions import Action, ScreenName
from screens.background import begin, in_own_thread
from screens.feed_state import QUEUE
from screens.host_actions import HostedRun
from screens.new_run_plan import Command, command_of
from screens.run import RunScreen
from screens.run_screen import RunScreenBase
from screens.widgets.choices import Choices
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kgops.hosts.registry import Host
    from kgops.jobs.job import Job
    from kgops.planning.filtering_preview import FilteringPreview
    from screens.feed_state import FeedState, Wanted
    from storage.runs import Run

_PATHS = ("data", "cwd", "data_directory", "config")
_DATA_FIELDS = ("data", "run", "data_directory")  # fields that select data
_LEAST_PLAN, _MOST_PLAN = 7, 12  # lines
_PATIENCE_S = 0.3  # before a slow step is announced


class NewRun(RunScreenBase):
    screen_name: ClassVar[ScreenName] = "new run"

    def __init__(self, draft: Draft, remark: str = "") -> None:
        super().__init__()
        self._draft, self._remark = draft, remark
        self._hosts: dict[str, Host] = {}
        self._offers = Offers()
        self._answer: Answer | None = None
        self._filtering: tuple[Draft, FilteringPreview | None] | None = None
        self._is_counting = False
        self._planning: set[DataKey] = set()
        self._waiting_for: str | None = "reading this machine's GPUs"
        self._starting = False
        self._queue: tuple[tuple[int, str], ...] | None = None
        self._is_stale = False  # whether the queue has changed since planning began

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Choices(id="body", cursor=True, panels=True)
        yield Lines(id="plan", panels=True)
        yield Keys()

    def on_mount(self) -> None:
        self._what_if = WhatIf(self.kgops.home)
        if self._remark:
            self.say(self._remark, "warn")
        begin(self, self._open)

    def on_unmount(self) -> None:
        self._what_if.close()

    async def _open(self) -> None:
        try:
            self._hosts = registry.read(self.kgops.home)
        except KgopsError as error:
            self.say(error_text(error), "bad")
        self._offers = await asyncio.to_thread(self._what_if.offers)
        first = {"data": self._offers.data[0], "run": self._newest}
        self._change(replace(self._draft, fields={**first, **self._draft.fields}))

    # --- overrides ---

    @property
    def wanted(self) -> Wanted:
        return QUEUE

    @property
    def subject(self) -> Run | None:
        return None

    @property
    def offered(self) -> list[Action]:
        """A what-if cannot be started."""
        starts = () if absent_gpu(self._draft) is None else ("screen.start", "screen.force")
        return [action for action in super().offered if action.does not in starts]

    def show_state(self, state: FeedState) -> None:
        """Plans again once runs have started or ended: the plan depends on what they leave."""
        if state.wanted == QUEUE and state.error_text is None and state.queue != self._queue:
            self._queue, self._is_stale = state.queue, True
            if self._answer is not None:
                self._plan()

    def title_row(self, width: int) -> Row:
        what = "what-if: cannot be started, this machine has no such GPU" if is_what_if(self._draft) else ""
        body = self._body
        below = round(body.max_scroll_y - body.scroll_y)
        return title("new run", f"↓ {below} more" if below > 0 else "", width, Piece(what, "dim"))

    def draw(self) -> None:
        body = self._body
        width = body.room
        answer = self._answer
        there = None if answer is None or answer.sent is None else answer.draft.where
        plan = (
            new_run_plan.plan_there(there, self._command, width)
            if there is not None
            else new_run_plan.plan_rows(
                answer,
                self._command,
                body.key,
                width,
                waits=self._waiting_for,
                filtering=self._filtering_of(answer),
            )
        )
        shown = new_run_page.rows(
            self._draft, self._offers, answer, width, list(self._hosts), self._filtering_of(answer)
        )
        edges = 0
        if body.draws_panels:
            shown, plan, edges = [text_row("JOB", width, "head"), *shown], new_run_plan.in_panel(plan), 2
        below = min(max(len(plan) + edges, _LEAST_PLAN), _MOST_PLAN)
        room = self.size.height - below - 2 - (not self.has_class("short"))
        height = max(min(len(shown) + edges, room), 1)  # the plan is directly below and always visible
        if body.styles.height is None or body.styles.height.value != height:
            body.styles.height = height
            self.call_after_refresh(self.show_title)
        body.show(shown)
        self.query_one("#plan", Lines).show(plan)
        self.show_title()

    def on_lines_pointed(self) -> None:
        self.draw()

    def on_lines_chosen(self) -> None:
        self.action_edit()

    # --- key actions ---

    def action_more(self) -> None:
        self._step(1)

    def action_less(self) -> None:
        self._step(-1)

    def _step(self, by: int) -> None:
        """Next or previous value of the row under the cursor."""
        key = self._key
        if key in DRAFT_OPTIONS[self._draft.workload]:
            option = (self._answer.options or {}).get(str(key)) if self._answer is not None else None
            if option is None:
                self.say("its values come with the plan, which is not there yet", "strong")
                return
            now = self._draft.options.get(option.name)
            if now is not None:  # several key presses may come before the next plan
                option = option._replace(applied=now, now=now)
            self._change(self._draft.with_option(option.name, step(option, by)))
            return
        self._change(
            new_run_page.stepped(self._draft, self._offers, self._answer, list(self._hosts), str(key), by)
        )

    def action_unset(self) -> None:
        """Leaves the row to profile, planner and defaults."""
        key = str(self._key)
        if key in DRAFT_OPTIONS[self._draft.workload]:
            self._change(self._draft.with_option(key, None))
        elif key in ("profile", "gpu", "where"):
            self._change(self._draft.with_choice(key, None))
        elif new_run_page.field_of(self._draft, key) is not None:
            self._change(self._draft.with_field(key, ""))

    def action_edit(self) -> None:
        key = self._key
        if key in DRAFT_OPTIONS[self._draft.workload] and (option := OPTIONS[str(key)]).takes_numbers:
            self._edit_option(option)
            return
        field = new_run_page.field_of(self._draft, key)
        if field is None:
            self._step(1)
            return

        def filled(text: str) -> None:
            self._change(self._draft.with_field(field.name, text))

        named = new_run_page.known_values(self._offers, field.name) or field.choices
        complete = completions if field.name in _PATHS else _beginning if named else None
        known = partial(complete, named=named) if complete is not None else None
        self._body.enter(field.name, self._draft.text(field.name), filled, known)

    def _edit_option(self, option: Option) -> None:
        def filled(text: str) -> None:
            try:
                value = option.of_text(text) if text else None
            except ValueError as error:
                self.say(f"{option.name}: {error}", "bad")
                return
            self._change(self._draft.with_option(option.name, value))

        now = self._draft.options.get(option.name)
        self._body.enter(option.name, "" if now is None else word_of(now), filled)

    def action_copy(self) -> None:
        command = self._command if self._is_current else None
        if command is None:
            self.say("no command yet", "warn")
            return
        try:
            command.write(self.kgops.home)
        except (KgopsError, OSError) as error:
            self.say(f"the job file cannot be written: {error}", "bad")
            return
        copying.copy(self.kgops, command.text)

    @property
    def _command(self) -> Command | None:
        if self._answer is None:
            return None
        return command_of(self._answer, self.kgops.home)

    @property
    def _key(self) -> object:
        """Of the row under the cursor."""
        return self._body.key

    @property
    def _body(self) -> Choices:
        return self.query_one("#body", Choices)

    def action_start(self) -> None:
        self._begin(force=False)

    def action_force(self) -> None:
        self._begin(force=True)

    def _begin(self, *, force: bool) -> None:
        """Starts the run and opens its screen, or shows why it was refused. Asks first unless it fits now."""
        if self._starting:
            return
        if self._draft.where is not None:
            self._begin_there(force=force)
            return
        answer = self._answer if self._is_current else None
        problem = absent_gpu(self._draft) or (_problem(answer) if answer is not None else None)
        if problem is not None:
            self.say(problem, "bad")
            return
        if not force and answer is not None and answer.refusal is not None:
            self.say(f"{answer.refusal.message}; X starts it anyway", "bad")
            return
        start = partial(self._start, self._draft, force)
        placed = answer.placed if answer is not None else None
        question = "start this run even if it does not fit?" if force else "start this run?"
        if placed is not None and placed.unused is not None:
            question = f"{placed.unused}. S{question[1:]}"
        elif placed is not None and placed.fit.state == "now" and not force:
            self._begin_once(start)
            return
        self.kgops.ask(question, lambda: self._begin_once(start))

    def _begin_once(self, start: Callable[[], Awaitable[None]]) -> None:
        if not self._starting:
            self._starting = True
            begin(self.app, start)  # owned by the app: this screen closes when the run opens

    async def _start(self, draft: Draft, force: bool) -> None:
        try:
            run = await self.kgops.carry_out(lambda session: run_calls.start(session, draft, force=force))
        finally:
            self._starting = False
        if run is not None and self.app.screen is self:
            await self.app.switch_screen(RunScreen(run))

    def _begin_there(self, *, force: bool) -> None:
        answer, host = self._answer if self._is_current else None, self._hosts.get(self._draft.where or "")
        if answer is None or answer.sent is None or host is None:
            trouble = answer.trouble if answer is not None else None
            self.say(trouble.message if trouble is not None else f"no host {self._draft.where}", "bad")
            return
        start = partial(self._start_there, host, answer.sent, force)

        self.kgops.ask(f"start it on {host.name}?", lambda: self._begin_once(start))

    async def _start_there(self, host: Host, job: Job, force: bool) -> None:
        from kgops.hosts.rows import run_of
        from kgops.hosts.run_actions import start_there
        from screens.host_run import HostRun

        flags = ["--force"] if force else []
        self.kgops.say(f"starting it on {host.name} …")
        try:
            number = await in_own_thread(lambda: start_there(self.kgops.home, host, job, flags))
        except KgopsError as error:
            self.say(error_text(error), "bad")
            return
        finally:
            self._starting = False
        if self.app.screen is self:
            await self.app.switch_screen(HostRun(HostedRun(host, run_of(number, {"label": job.label}))))
        self.kgops.say(f"started run {host.name}:{number}")

    # --- planning, in threads ---

    @property
    def _newest(self) -> str:
        return self._offers.runs[0] if self._offers.runs else ""

    @property
    def _is_current(self) -> bool:
        return self._answer is not None and self._answer.draft == self._draft

    def _change(self, draft: Draft) -> None:
        self._draft = draft
        self.draw()
        self._plan()

    def _plan(self) -> None:
        """One thread per data set, so that no data are counted twice and other data need not wait."""
        data_key = _data_key(self._draft)
        if data_key not in self._planning:
            self._planning.add(data_key)
            begin(self, partial(self._keep_planning, data_key))

    async def _keep_planning(self, data_key: DataKey) -> None:
        """Plans until the newest draft has a plan."""
        timer = self.set_timer(_PATIENCE_S, lambda: self._wait(data_key))
        try:
            while _data_key(self._draft) == data_key:
                if self._is_current and not self._is_stale:
                    return
                self._is_stale = False
                answer = await asyncio.to_thread(self._what_if.answer, self._draft)
                if answer.draft == self._draft:
                    self._answer, self._waiting_for = answer, None
                    self.draw()
                    self._count_filters()
        finally:
            timer.stop()
            self._planning.discard(data_key)

    def _filtering_of(self, answer: Answer | None) -> FilteringPreview | None:
        """What filters leave, where it has been counted for this answer."""
        is_counted = answer is not None and self._filtering is not None and self._filtering[0] == answer.draft
        return self._filtering[1] if self._filtering is not None and is_counted else None

    def _count_filters(self) -> None:
        """Counts beside planning: it takes seconds, in which keys and plans go on."""
        if not self._is_counting and can_filter(self._draft):
            self._is_counting = True
            begin(self, self._keep_counting)

    async def _keep_counting(self) -> None:
        try:
            while (answer := self._answer) is not None and (
                self._filtering is None or self._filtering[0] != answer.draft
            ):
                preview = await in_own_thread(partial(self._what_if.filtering, answer))
                self._filtering = answer.draft, preview
                self.draw()
        finally:
            self._is_counting = False

    def _wait(self, data_key: DataKey) -> None:
        if _data_key(self._draft) == data_key and not self._is_current:
            is_of_flights = not WORKLOADS[self._draft.workload].has_graph
            self._waiting_for = (
                "reading the flight data" if is_of_flights else "counting triples, once per data set"
            )
            self.draw()


def _problem(answer: Answer) -> str | None:
    """Why the run cannot start, even forced."""
    return answer.impossible if answer.trouble is None else answer.trouble.message


def _beginning(text: str, *, named: Sequence[str]) -> list[str]:
    return [name for name in named if name.lower().startswith(text.lower())]


DataKey = tuple[str, ...]


def _data_key(draft: Draft) -> DataKey:
    return draft.workload, *(draft.text(name) for name in _DATA_FIELDS)
