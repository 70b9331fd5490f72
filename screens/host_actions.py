"""Key actions on a run of another host: stop, resume and again go there, each after a question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kgops.errors import KgopsError
from kgops.hosts.registry import Host
from kgops.jobs.text import one_line
from kgops.present.wording import error_text
from screens.background import begin
from screens.run_screen import RunScreenBase

if TYPE_CHECKING:
    from kgops.settings import Home
    from storage.runs import Run


class HostedRun(NamedTuple):
    host: Host
    run: Run  # what its host said of it; what it did not say is None

    @property
    def name(self) -> str:
        return f"{self.host.name}:{self.run.id}"


class ChangesHostRuns(RunScreenBase):
    """Waits for no host: what one takes its time for is said when it has answered."""

    @property
    def chosen(self) -> HostedRun | None:
        """The run that keys act on."""
        raise NotImplementedError

    @property
    def subject(self) -> Run | None:
        return None if self.chosen is None else self.chosen.run

    def action_stop(self) -> None:
        self._change_if_sure("stop {}?", _stop)

    def action_resume(self) -> None:
        self._change_if_sure("resume {}?", _resume)

    def action_again(self) -> None:
        self._change_if_sure("start the job of {} again?", _again)

    def _change_if_sure(self, question: str, change: Callable[[Home, HostedRun], str]) -> None:
        chosen = self.chosen
        if chosen is not None:
            named = f"run {chosen.name} ({one_line(chosen.run.label, 30)})"
            self.kgops.ask(question.format(named), lambda: self._start(change, chosen))

    def _start(self, change: Callable[[Home, HostedRun], str], chosen: HostedRun) -> None:
        self.kgops.say(f"asking {chosen.host.name} …")
        begin(self.app, partial(self._apply, change, chosen))

    async def _apply(self, change: Callable[[Home, HostedRun], str], chosen: HostedRun) -> None:
        try:
            self.kgops.say(await asyncio.to_thread(change, self.kgops.home, chosen))
        except KgopsError as error:
            self.kgops.say(error_text(error), "bad")


def _stop(home: Home, chosen: HostedRun) -> str:
    from kgops.hosts import run_actions

    (stopped,) = run_actions.stop(home, chosen.host, [str(chosen.run.id)], waits=False)
    if stopped.state in ("queued", "starting", "running"):
        return f"asked run {chosen.name} to stop; it may still write a checkpoint"
    return f"run {chosen.name} is {stopped.state.replace('_', ' ')}"


def _resume(home: Home, chosen: HostedRun) -> str:
    from kgops.hosts.run_actions import resume_there

    resume_there(home, chosen.host, str(chosen.run.id))
    return f"resumed run {chosen.name}"


def _again(home: Home, chosen: HostedRun) -> str:
    from kgops.hosts.run_actions import again_there

    number = again_there(home, chosen.host, str(chosen.run.id))
    return f"started run {chosen.host.name}:{number} with the job of run {chosen.name}"
