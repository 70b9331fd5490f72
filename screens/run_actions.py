"""What keys do to the run that a screen is about: stop it, go on with it, start it again, tag it, write a note."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from screens.background import begin
from screens.run_screen import Place

if TYPE_CHECKING:
    from kgops.cli.session import Session
    from storage.runs import Run

__all__ = ["ChangesRuns"]

# What changes a run is imported once somebody does: it has half of kgops behind it, and looking on needs none of that.


class ChangesRuns(Place):
    """What is begun goes on when the screen is left."""

    def action_stop(self) -> None:
        from screens import run_calls

        self._change(run_calls.stop)

    def action_resume(self) -> None:
        from screens import run_calls

        self._change(run_calls.resume)

    def action_again(self) -> None:
        from screens import run_calls

        self._change(run_calls.again)

    def action_tag(self) -> None:
        from screens import run_calls

        self._ask("tags for run {}: words add them, -word takes one away", run_calls.tag)

    def action_note(self) -> None:
        from screens import run_calls

        self._ask("a note on run {}", run_calls.note)

    def _ask(self, question: str, change: Callable[[Session, Run, str], str]) -> None:
        from screens.question import Ask

        run = self.subject
        if run is None:
            return

        def answered(words: str | None) -> None:
            if words:
                self._start(lambda session: change(session, run, words))

        self.app.push_screen(Ask(question.format(run.id)), answered)

    def _change(self, change: Callable[[Session, Run], str]) -> None:
        run = self.subject
        if run is not None:
            self._start(lambda session: change(session, run))

    def _start(self, change: Callable[[Session], str]) -> None:
        """In a thread: a start waits for disks and drivers, and the screen for nobody."""
        begin(self.app, partial(self._changed, change))

    async def _changed(self, change: Callable[[Session], str]) -> None:
        done = await self.kgops.carry_out(change)
        if done is not None:
            self.kgops.say(done)
