"""A run of another host, as kgops there shows it: its page and the end of its log."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult

from kgops.hosts.ask import Answer, ask
from kgops.jobs.text import clock, from_bytes
from screens.actions import ScreenName
from screens.driver import begin
from screens.feed import FeedState
from screens.host_actions import ChangesHostRuns, HostedRun
from screens.rows import BLANK, Row, text_row, title
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from kgops.hosts.registry import Host
    from kgops.settings import Home
    from screens.feed import Wanted

__all__ = ["HostRun"]

_LOG_LINES = 200
_MOST_LINES = 2_000


class HostRun(ChangesHostRuns):
    """Asks over the connection that is open already, in a thread; `R` asks again."""

    screen_name: ClassVar[ScreenName] = "host run"

    def __init__(self, shown: HostedRun) -> None:
        super().__init__()
        self._shown, self._host, self._run = shown, shown.host, shown.run.id
        self._answers: tuple[Answer, Answer] | None = None
        self._as_of: float | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="body", scrolls=True)
        yield Keys()

    # --- overrides ---

    @property
    def wanted(self) -> Wanted:
        return None

    @property
    def chosen(self) -> HostedRun | None:
        return self._shown

    def show_state(self, state: FeedState) -> None:
        pass

    def title_row(self, width: int) -> Row:
        right = "asking …" if self._as_of is None else f"as of {clock(self._as_of, '%H:%M:%S')}"
        return title(f"{self._host.name} · run {self._run}", right, width)

    def draw(self) -> None:
        self.query_one("#body", Lines).show(self._rows(self.size.width))
        self.show_title()

    def on_mount(self) -> None:
        self.draw()
        self.action_retry()

    def action_retry(self) -> None:
        begin(self, self._ask, instead="ask")

    async def _ask(self) -> None:
        self._answers = await asyncio.to_thread(_answers, self.kgops.home, self._host, self._run)
        self._as_of = time.time()
        self.draw()

    def _rows(self, width: int) -> list[Row]:
        if self._answers is None:
            return [text_row(f"asking {self._host.name} …", width, "dim")]
        page, log = self._answers
        return [*_shown(page, width), BLANK, text_row("LOG", width, "head"), *_shown(log, width)]


def _answers(home: Home, host: Host, run: int) -> tuple[Answer, Answer]:
    (page,) = ask(home, [host], ("show", str(run)))
    (log,) = ask(home, [host], ("logs", "-n", str(_LOG_LINES), str(run)))
    return page, log


def _shown(answer: Answer, width: int) -> list[Row]:
    if answer.problem is not None:
        hint = f" → {answer.hint}" if answer.hint else ""
        return [text_row(f"{answer.problem}{hint}", width, "bad")]
    lines = from_bytes(answer.out[: 1 << 20]).split("\n")[:_MOST_LINES]
    return [text_row(line[:4_000], width) for line in lines]
