"""Hosts screen: GPUs and runs of all hosts, each as its own feed tells them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.message import Message

from kgops.hosts.mirror import HostState
from kgops.hosts.registry import Host
from kgops.hosts.rows import is_outdated, run_of
from kgops.present.rows import Row, title
from screens import hosts_page
from screens.actions import ScreenName
from screens.background import begin
from screens.feed_state import FeedState
from screens.host_actions import ChangesHostRuns, HostedRun
from screens.hosts_page import is_late
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from kgops.hosts.watch import Watch
    from kgops.settings import Home
    from screens.app import KgopsApp
    from screens.feed_state import Wanted

_AGES_EVERY_S = 5.0


class HostsChanged(Message):
    """A host said something new; a newer message replaces an older one in the queue."""

    def __init__(self, states: Sequence[HostState]) -> None:
        super().__init__()
        self.states = states

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, HostsChanged)


class Hosts(ChangesHostRuns):
    """Reads no connection itself: what hangs is waited for by the watch's thread."""

    screen_name: ClassVar[ScreenName] = "hosts"

    def __init__(self, app: KgopsApp, hosts: Sequence[Host]) -> None:
        super().__init__()
        self._states: Sequence[HostState] = tuple(HostState(host.name, host.address) for host in hosts)
        self._hosts = {host.name: host for host in hosts}
        self._waiting: Sequence[HostState] | None = None  # what came while the console was paused
        self._opened: set[tuple[str, str]] = set()  # GPUs whose processes are listed
        self._shows_ages = False
        self._home = app.home
        self._watch: Watch | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="body", cursor=True, panels=True)
        yield Keys()

    # --- overrides ---

    @property
    def wanted(self) -> Wanted:
        return None  # nothing of this machine

    @property
    def _key(self) -> object:
        return next((body.key for body in self.query("#body").results(Lines)), None)

    @property
    def host_here(self) -> str | None:
        key = self._key  # ("gpu", host, …), and so for a host and a run
        return key[1] if isinstance(key, tuple) else None

    @property
    def chosen(self) -> HostedRun | None:
        """The run under the cursor, as its host described it last."""
        key = self._key
        if not isinstance(key, tuple) or key[0] != "run":
            return None
        state = next((one for one in self._states if one.name == key[1]), None)
        fields = state.rows("run").get(str(key[2])) if state is not None else None
        return None if fields is None else HostedRun(self._hosts[key[1]], run_of(key[2], fields))

    @property
    def opens(self) -> bool:
        return self.chosen is not None or self._gpu is not None

    @property
    def _gpu(self) -> tuple[str, str] | None:
        """The GPU under the cursor, by host and number."""
        key = next((body.key for body in self.query("#body").results(Lines)), None)
        return (key[1], key[2]) if isinstance(key, tuple) and key[0] == "gpu" else None

    def open_chosen(self) -> None:
        """Shows the run under the cursor, where it is, or lists the processes of the GPU."""
        if self._gpu is not None:
            self._opened ^= {self._gpu}
            self.draw()
        elif self.chosen is not None:
            from screens.host_run import HostRun

            self.app.push_screen(HostRun(self.chosen))

    def on_lines_pointed(self) -> None:
        self.query_one(Keys).offer(self.offered)

    def on_lines_chosen(self) -> None:
        self.open_chosen()

    def show_state(self, state: FeedState) -> None:
        pass

    def title_row(self, width: int) -> Row:
        live = sum(state.reach == "live" for state in self._states)
        active = sum(
            run.get("state") in ("running", "starting")
            for state in self._states
            if state.reach == "live"
            for run in state.rows("run").values()
        )
        right = f"{live} of {len(self._states)} answer · {active} running" if self._states else ""
        return title("hosts", right, width)

    def draw(self) -> None:
        rows = hosts_page.rows(
            self._states,
            self.query_one("#body", Lines).room,
            time.time(),
            opened=self._opened,
        )
        self.query_one("#body", Lines).show(rows)
        self.show_title()

    def on_mount(self) -> None:
        self.set_interval(_AGES_EVERY_S, self._draw_ages)
        self.draw()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.call_after_refresh(self._begin_watching)  # twenty clients start: after the first picture

    def on_unmount(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def on_hosts_changed(self, message: HostsChanged) -> None:
        if not self.is_running:
            return
        if self.kgops.feed.paused:
            self._waiting = message.states
            return
        self._states, self._waiting = message.states, None
        self.draw()

    def show_title(self) -> None:
        """Also called when the pause ends."""
        if self._waiting is not None and not self.kgops.feed.paused:
            self._states, self._waiting = self._waiting, None
            self.draw()
            return
        super().show_title()

    # --- key actions ---

    def action_retry(self) -> None:
        """Tries hosts that do not answer at once, and settles states that may be outdated."""
        if self._watch is not None:
            self._watch.try_now()
        self.kgops.say("trying again")
        if outdated := [self._hosts[state.name] for state in self._states if is_outdated(state)]:
            begin(self.app, lambda: asyncio.to_thread(_settle, self._home, outdated))

    def _begin_watching(self) -> None:
        if self._watch is None and self.is_running:
            from kgops.hosts.watch import Watch

            self._watch = Watch(self._home, list(self._hosts.values()), self._post, self.kgops.raise_in_app)
            self._watch.start()

    # --- called from the watch's thread ---

    def _post(self, states: Sequence[HostState]) -> None:
        self.post_message(HostsChanged(states))

    def _draw_ages(self) -> None:
        if self._watch is None or self._waiting is not None or self.kgops.feed.paused:
            return
        now, states = time.time(), self._watch.states
        are_old = any(state.reach != "live" or is_late(state, now) for state in states)
        if are_old or self._shows_ages:
            self._states, self._shows_ages = states, are_old
            self.draw()


def _settle(home: Home, hosts: Sequence[Host]) -> None:
    """A listing there settles its runs; what it says comes by the feed."""
    from kgops.hosts.ask import ask

    ask(home, hosts, ("runs", "--limit=1"))
