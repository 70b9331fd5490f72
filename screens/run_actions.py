"""Key actions on the selected run: stop, resume, again, tag, note."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kgops.jobs.text import one_line
from screens.background import begin
from screens.run_screen import RunScreenBase

if TYPE_CHECKING:
    from kgops.cli.session import Session
    from storage.runs import Run

# run_calls imports half of kgops, so it is imported on first use.


class ChangesRuns(RunScreenBase):
    """Actions go on when the screen is closed."""

    def action_stop(self) -> None:
        from screens import run_calls

        self._change_if_sure("stop {}?", run_calls.stop)

    def action_resume(self) -> None:
        from screens import run_calls

        self._change_if_sure("resume {}?", run_calls.resume)

    def action_again(self) -> None:
        from screens import run_calls

        self._change_if_sure("start the job of {} again?", run_calls.again)

    def action_tag(self) -> None:
        from screens import run_calls

        self._prompt("tags of run {}: word adds a tag, -word removes it", run_calls.tag)

    def action_note(self) -> None:
        from screens import run_calls

        self._prompt("note on run {}", run_calls.note, keeps_lines=True)

    def _prompt(
        self, question: str, change: Callable[[Session, Run, str], str], *, keeps_lines: bool = False
    ) -> None:
        run = self.subject
        if run is None:
            return

        def typed(words: str) -> None:
            self._start(lambda session: change(session, run, words))

        self.kgops.prompt(question.format(run.id), typed, keeps_lines=keeps_lines)

    def _change_if_sure(self, question: str, change: Callable[[Session, Run], str]) -> None:
        run = self.subject
        if run is not None:
            named = f"run {run.id} ({one_line(run.label, 30)})"
            self.kgops.ask(question.format(named), lambda: self._start(lambda session: change(session, run)))

    def _start(self, change: Callable[[Session], str]) -> None:
        """In a thread: starting a run waits for disks and drivers."""
        begin(self.app, partial(self._apply, change))

    async def _apply(self, change: Callable[[Session], str]) -> None:
        message = await self.kgops.carry_out(change)
        if message is not None:
            self.kgops.say(message)
