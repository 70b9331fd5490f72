"""A run of another host: its page, curves and log, as its feed tells them over the connection that is open already."""

from __future__ import annotations

import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from kgops.errors import KgopsError
from kgops.hosts.mirror import HostState
from kgops.present.formats import age
from kgops.present.rows import Piece, Row, text_row
from kgops.present.wording import error_text
from screens.actions import ScreenName
from screens.background import begin
from screens.host_actions import ChangesHostRuns, HostedRun
from screens.run import RunView
from screens.widgets.lines import Lines
from screens.widgets.log_lines import LogLines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgops.hosts.registry import Host
    from kgops.hosts.run_mirror import LogCopy
    from kgops.hosts.watch import Watch
    from kgops.settings import Home
    from screens.feed_state import FeedState, Wanted

_AGES_EVERY_S = 5.0
_ENDS_WITHIN_S = 10.0  # the watch's thread, after its page was left
_OLDER, _OLDEST = 1 << 20, 1 << 24  # bytes of earlier lines that are asked for: at first, and at most


class HostRun(RunView, ChangesHostRuns):
    """Waits for nothing: the watch's thread tells what changed, and another one brings earlier lines of the log."""

    screen_name: ClassVar[ScreenName] = "host run"

    def __init__(self, shown: HostedRun) -> None:
        super().__init__(shown.run)
        self._host = shown.host
        self._state = HostState(self._host.name, self._host.address)
        self._folder = tempfile.TemporaryDirectory(prefix="kgops-log-")
        self._copy: LogCopy | None = None
        self._watch: Watch | None = None
        self._older = _OLDER
        self._is_asking = False
        self._waiting: Sequence[HostState] | None = None  # what came while the console was paused

    # --- overrides ---

    @property
    def log_path(self) -> Path:
        return Path(self._folder.name) / "worker.log"

    @property
    def run_name(self) -> str:
        return f"{self._host.name}:{self._run.id}"

    @property
    def wanted(self) -> Wanted:
        return None  # nothing of this machine

    @property
    def chosen(self) -> HostedRun | None:
        return HostedRun(self._host, self._run)

    def show_state(self, state: FeedState) -> None:
        pass

    def title_row(self, width: int) -> Row:
        row = super().title_row(width)
        return row._replace(pieces=(*row.pieces, Piece(f"  {self._news(time.time())}", "warn")))

    def show_title(self) -> None:
        """Also called when the pause ends."""
        if self._waiting is not None and not self.kgops.feed.paused:
            self._take(self._waiting)
        super().show_title()

    def draw(self) -> None:
        is_old = self._state.reach != "live" and self._detail is not None
        for lines in self.query(Lines):
            if lines.id in ("tabs", "body", "lines"):
                lines.fade(is_old)
        if self._detail is None:
            words = self._state.problem or f"asking {self._host.name} …"
            hint = f" → {self._state.hint}" if self._state.hint else ""
            tone = "bad" if self._state.problem else "dim"
            self.query_one("#body", Lines).show([text_row(f"{words}{hint}", self.size.width, tone)])
            self.show_title()
            return
        try:
            super().draw()
        except (KeyError, TypeError, ValueError, AttributeError):
            # Tables of another machine, of whose form nobody knows anything, as a plan's.
            words = f"what {self._host.name} says of the run cannot be shown"
            self.query_one("#body", Lines).show([text_row(words, self.size.width, "bad")])
            self.show_title()
        self._show_extent()

    def on_mount(self) -> None:
        from kgops.hosts.run_mirror import LogCopy, RunMirror
        from kgops.hosts.watch import Watch

        console = self.kgops  # not to be found any more by a thread that posts when this page has been left

        def post(states: Sequence[HostState]) -> None:
            console.call_later(self._take, states)

        copy = self._copy = LogCopy(self.log_path)
        self._watch = Watch(
            self.kgops.home,
            [self._host],
            post,
            console.raise_in_app,
            asks=(f"--run={self._run.id}",),
            mirror=partial(RunMirror, copy),
        )
        self._watch.start()
        self.set_interval(_AGES_EVERY_S, self._draw_age)
        self.draw()

    def on_unmount(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        asyncio.get_running_loop().run_in_executor(None, self._forget)

    def _forget(self) -> None:
        """In a thread: the watch's may be writing the log's copy still."""
        if self._watch is not None:
            self._watch.stop(_ENDS_WITHIN_S)
        self._folder.cleanup()

    def action_retry(self) -> None:
        if self._watch is not None:
            self._watch.try_now()

    # --- what came ---

    def _take(self, states: Sequence[HostState]) -> None:
        if not self.is_running:
            return
        if self.kgops.feed.paused:
            self._waiting = states
            return
        (self._state,), self._waiting = states, None
        if self._state.detail is not None:
            self._detail, self._run = self._state.detail, self._state.detail.run
        self.run_log.read_again()  # of a run that has ended, too: its last lines may come after its end
        self.draw()

    def _news(self, now: float) -> str:
        """Why the page may be old."""
        state = self._state
        if state.reach == "live":
            return ""
        if state.heard_at is None:
            return "connecting …" if state.reach == "connecting" else "does not answer"
        return f"does not answer, as of {age(state.heard_at, now)} ago: {state.problem or ''}".rstrip(": ")

    def _draw_age(self) -> None:
        if self._state.reach != "live":
            self.show_title()

    # --- earlier lines of the log ---

    def on_log_lines_scrolled(self) -> None:
        """At the top, earlier lines are asked for."""
        lines, copy = self.query_one(LogLines), self._copy
        if copy is None or self._is_asking or lines.top or lines.follows or copy.begins <= copy.there[0]:
            return
        self._is_asking = True
        self._show_extent()
        begin(self, self._fetch_older)

    async def _fetch_older(self) -> None:
        copy, number = self._copy, self._run.id
        assert copy is not None
        try:
            await asyncio.to_thread(_fetch, self.kgops.home, self._host, number, copy, self._older)
            self._older = min(self._older * 2, _OLDEST)
        except (KgopsError, OSError) as error:
            self.kgops.say(error_text(error) if isinstance(error, KgopsError) else str(error), "bad")
        self._is_asking = False
        self.run_log.read_again()
        self._show_extent()

    def _show_extent(self) -> None:
        copy = self._copy
        missing = 0 if copy is None else copy.begins - copy.there[0]
        words = "asking for earlier lines …" if self._is_asking else "scroll to the top for them"
        self.run_log.says_beyond(
            f"{missing / 2**20:,.1f} MiB of earlier lines: {words}" if missing > 0 else ""
        )


def _fetch(home: Home, host: Host, number: int, copy: LogCopy, size: int) -> None:
    from kgops.hosts.archive import fetch_bytes

    upto = copy.begins
    since = max(upto - size, copy.there[0])
    words = ("logs", "--raw", f"--bytes={since}:{upto}", "--", str(number))
    copy.add_before(since, fetch_bytes(home, host, words, size))
