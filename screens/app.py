"""Textual application of kgops: screens, key actions, themes and the feed thread."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.app import App, SystemCommand
from textual.filter import Monochrome
from textual.message import Message

from kgops.errors import KgopsError
from kgops.present.wording import error_text, notification, through_tmux
from kgops.settings import Home, find_home
from screens.actions import ACTIONS, bindings, holding
from screens.background import begin
from screens.feed import Feed
from screens.feed_state import FeedState
from screens.run_screen import RunScreenBase
from screens.symbols import THEMES, Tones, filters_of_terminal, tones_of
from storage.errors import StorageError

if TYPE_CHECKING:
    from textual.command import Provider
    from textual.driver import Driver
    from textual.filter import LineFilter
    from textual.screen import Screen

    from kgops.cli.session import Session
    from kgops.hosts.registry import Host
    from kgops.present.drafts import Draft
    from screens.benchmarks import Benchmarks
    from screens.dashboard import Dashboard
    from screens.history import History
    from storage.runs import Run

THEME_VARIABLE = "KGOPS_THEME"
NOTIFY_VARIABLE = "KGOPS_NOTIFY"  # bell or osc9
_READY_AFTER_S = 0.5
T = TypeVar("T")


class FeedChanged(Message):
    """The feed read a new state; a newer message replaces an older one of its kind in the queue."""

    def __init__(self, state: FeedState) -> None:
        super().__init__()
        self.state = state

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, FeedChanged) and type(message.state.wanted) is type(self.state.wanted)


def _places() -> type[Provider]:
    from screens.places import Places  # the palette's parts are seldom needed

    return Places


class KgopsApp(App[None], inherit_bindings=False):
    CSS_PATH = "kgops.tcss"
    COMMANDS: ClassVar = {*App.COMMANDS, _places}
    BINDINGS: ClassVar = bindings()
    TITLE = "kgops"
    last_filter = ""  # of the history
    DEFAULT_MODE = "opened with"  # Textual's own name for it cannot be removed

    def __init__(
        self, home: Home, *, unicode: bool | None = None, hosts: Sequence[Host] | None = None
    ) -> None:
        """`unicode`: all signs and colours, or ASCII; None: what the terminal has, by its environment.
        `hosts`: those to be shown at once, in place of the dashboard of this machine."""
        no_color = os.environ.get("NO_COLOR")
        super().__init__()
        if no_color is not None:  # Textual removes it; runs started from here need it
            os.environ["NO_COLOR"] = no_color
        self.home = home
        wanted = os.environ.get(NOTIFY_VARIABLE)
        self._notifies_by = wanted if wanted in ("bell", "osc9") else None
        self.feed = Feed(home, self._post, self.raise_in_app, notifies=self._notifies_by is not None)
        self.animation_level = "none"  # every frame would go over SSH
        for theme in THEMES.values():
            self.register_theme(theme)
        wanted = f"kgops-{os.environ.get(THEME_VARIABLE, 'dark')}"
        self.set_reactive(App.theme, wanted if wanted in THEMES else "kgops-dark")
        self.stylesheet.set_variables(
            self.get_css_variables()
        )  # before the stylesheet is parsed, to parse it once
        self._tones: tuple[str, tuple[Tones, Tones]] | None = None
        self._replaces = list(filters_of_terminal(lambda: self.theme, unicode))
        self._one_change_at_a_time = asyncio.Lock()
        self._notified: set[str] | None = None  # alerts that were shown already
        self._has_state = False
        self._hosts = hosts
        self.add_mode(self.DEFAULT_MODE, self.get_default_screen)
        self.add_mode("dashboard", _dashboard)

    # --- Textual overrides ---

    def get_default_screen(self) -> Screen[None]:
        if self._hosts is not None:
            from screens.hosts import Hosts

            return Hosts(self, self._hosts)
        return _dashboard()

    def get_driver_class(self) -> type[Driver]:
        """Ours for browsers, otherwise Textual's."""
        wanted = super().get_driver_class()
        if wanted.__name__ == "WebDriver":
            from screens.web_driver import ExitingWebDriver

            return ExitingWebDriver
        return wanted

    def get_line_filters(self) -> Sequence[LineFilter]:
        theirs = [one for one in super().get_line_filters() if not isinstance(one, Monochrome)]
        return [*theirs, *self._replaces]

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Command palette: the actions of the screen it was opened from."""
        here = screen if isinstance(screen, RunScreenBase) else None
        for action in holding(here.screen_name, here.subject) if here is not None else ACTIONS:
            if action.sign and action.does != "app.command_palette":
                yield SystemCommand(
                    action.name,
                    f"{action.help} ({action.sign})",
                    lambda does=action.does: self.run_action(does),
                )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ignores keys whose action does not apply here, and those typed behind the one that quits."""
        return self.return_code is None and (self.here is None or self.here.allows(f"app.{action}"))

    def on_mount(self) -> None:
        # SIGHUP: its terminal has gone. Such a handler also lets the loop hear of SIGCONT and SIGWINCH at once.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.exit)
        self.app_resume_signal.subscribe(self, lambda _: self.action_redraw())
        self.call_after_refresh(self.feed.start)  # after the first paint

    def on_browser_closed(self) -> None:
        self.exit()

    def on_unmount(self) -> None:
        self.feed.stop()
        _remember_leaving(self.home)

    def on_feed_changed(self, message: FeedChanged) -> None:
        if not self.is_running:  # exiting: screens lose their widgets before they are removed
            return
        for screen in self.screen_stack:
            if isinstance(screen, RunScreenBase):
                screen.show_state(message.state)
        if self._notifies_by is not None and message.state.error_text is None:
            self._notify_of_new(message.state)
        if not self._has_state:
            self._has_state = True
            self.set_timer(_READY_AFTER_S, _be_ready_for_a_run)

    def _notify_of_new(self, state: FeedState) -> None:
        """Of alerts that came while the console was open, on whichever screen."""
        names = {alert.name: alert for alert in state.alerts}
        new = [names[name] for name in names if self._notified is not None and name not in self._notified]
        # Kept, though a screen without GPUs has none of their alerts.
        self._notified = {*names, *(self._notified or ())}
        if not new:
            return
        if self._notifies_by == "bell":
            self.bell()
        else:
            _send(notification(new[0]))

    @property
    def tones(self) -> tuple[Tones, Tones]:
        """Styles of the theme by tone: plain, and under the cursor."""
        if self._tones is None or self._tones[0] != self.theme:
            self._tones = (self.theme, tones_of(self.theme))
        return self._tones[1]

    def _post(self, state: FeedState) -> None:
        """Called from the feed's thread."""
        self.post_message(FeedChanged(state))

    # --- key actions ---

    @property
    def here(self) -> RunScreenBase | None:
        """The active run screen; None while a prompt is open."""
        return self.screen if isinstance(self.screen, RunScreenBase) else None

    def copy_to_clipboard(self, text: str) -> None:
        """Also through tmux, which Textual does not know."""
        super().copy_to_clipboard(text)
        if os.environ.get("TMUX"):
            coded = base64.b64encode(text.encode("utf-8", "replace")).decode()
            _send(through_tmux(f"\x1b]52;c;{coded}\x07"))

    def say(self, text: str, tone: str = "strong") -> None:
        """Shows a message on the active screen."""
        if self.here is not None:
            self.here.say(text, tone)

    def action_open(self) -> None:
        """Opens the run that the active screen is about."""
        if self.here is not None:
            self.here.open_chosen()

    async def action_back(self) -> None:
        if len(self.screen_stack) > 1:
            await self.pop_screen()
        elif self._hosts is not None:
            self._hosts = None
            await self.switch_mode("dashboard")
            await self.remove_mode(self.DEFAULT_MODE)

    def action_redraw(self) -> None:
        self.refresh(layout=True)

    def action_new(self) -> None:
        if self.here is not None:
            self.here.open_new_run()

    def open_new_run(
        self, gpu: str | None = None, where: str | None = None, profile: str | None = None
    ) -> None:
        """Planned for that GPU, which need not be in this machine, or for the host `where`, with that profile."""
        from kgops.present.drafts import Draft

        self.open_draft(Draft(gpu=gpu, where=where, profile=profile))

    def open_draft(self, draft: Draft, remark: str = "") -> None:
        """New run, with these values in its fields. `remark`: what a person should know of them."""
        from screens.new_run import NewRun

        self.feed.start()  # a key pressed before the first paint cancels the start on mount
        self.push_screen(NewRun(draft, remark))

    def action_influences(self) -> None:
        from kgops.workloads.results import leaves
        from screens.influences import Influences

        here = self.here
        run = here.subject if here is not None else None
        self.feed.start()
        if run is not None and leaves(run.workload, "explanations"):
            self.open_explanation(run)
        elif run is not None and leaves(run.workload, "influences"):
            self.push_screen(Influences(run))
        elif (
            run is not None
            and here is not None
            and here.screen_name == "run"
            and leaves(run.workload, "model")
        ):
            begin(self, partial(self._trace, run))
        else:
            self.push_screen(Influences(None))

    async def _trace(self, run: Run) -> None:
        """The newest influences of this model, or New run for them."""
        from kgops.present import influences
        from kgops.present.drafts import Draft
        from screens.influences import Influences

        here = self.screen
        found = await asyncio.to_thread(influences.newest, self.home, run.id)
        if self.screen is here and found is not None:
            self.push_screen(Influences(found))
        elif self.screen is here:
            self.open_draft(Draft("tracin", {"run": str(run.id)}))

    def open_explanation(self, run: Run) -> None:
        from screens.explanation import Explanation

        self.push_screen(Explanation(run))

    def action_predictions(self) -> None:
        from screens.predictions import Predictions

        run = self.here.subject if self.here is not None else None
        if run is not None:
            self.feed.start()
            self.push_screen(Predictions(run))

    async def action_history(self) -> None:
        from screens.history import History

        await self._go_back_to_or_open(History)

    async def open_history(self, text: str) -> None:
        """With this filter."""
        from screens.history import History

        await self._go_back_to_or_open(History)
        if isinstance(self.here, History):
            self.here.show_filter(text)

    def open_run(self, run: Run) -> None:
        from screens.run import RunScreen

        self.feed.start()
        self.push_screen(RunScreen(run))

    def gpus(self) -> list[tuple[int, str]]:
        """Numbers and names of those that the dashboard shows; none where only hosts are open."""
        dashboard = self._dashboard
        return [] if dashboard is None else dashboard.gpus()

    def open_gpu(self, index: int) -> None:
        dashboard = self._dashboard
        if dashboard is not None:
            dashboard.action_gpu(index)

    @property
    def _dashboard(self) -> Dashboard | None:
        """Below all other screens, but for `--hosts`, which opens on the hosts alone."""
        from screens.dashboard import Dashboard

        lowest = self.screen_stack[0]
        return lowest if isinstance(lowest, Dashboard) else None

    async def action_benchmarks(self) -> None:
        from screens.benchmarks import Benchmarks

        await self._go_back_to_or_open(Benchmarks)

    async def _go_back_to_or_open(self, kind: type[History] | type[Benchmarks]) -> None:
        """Goes back to an open screen of that kind, or opens a new one."""
        self.feed.start()
        below = [isinstance(screen, kind) for screen in reversed(self.screen_stack)]
        if True not in below:
            self.push_screen(kind(self))
        for _ in range(below.index(True) if True in below else 0):
            await self.pop_screen()

    def action_hosts(self) -> None:
        from kgops.hosts import registry
        from screens.hosts import Hosts

        self.feed.start()
        try:
            self.push_screen(Hosts(self, list(registry.read(self.home).values())))
        except KgopsError as error:
            self.say(error_text(error), "bad")

    def action_profiles(self) -> None:
        from screens.profiles import Profiles

        self.feed.start()
        self.push_screen(Profiles())

    def action_pause(self) -> None:
        self.feed.pause(not self.feed.paused)
        for screen in self.screen_stack:
            if isinstance(screen, RunScreenBase):
                screen.show_title()

    def action_colours(self) -> None:
        names = list(THEMES)
        self.theme = names[(names.index(self.theme) + 1) % len(names)] if self.theme in names else names[0]
        for screen in self.screen_stack:
            screen.refresh(layout=True)
            for widget in screen.query("Lines"):
                widget.refresh()
        self.say(f"theme {self.theme.removeprefix('kgops-')}; set {THEME_VARIABLE} to keep it")

    def action_help(self) -> None:
        from screens.help import HelpScreen

        if self.here is not None:
            self.push_screen(HelpScreen(self.here.screen_name, self.here.subject))

    def ask(self, question: str, then: Callable[[], None]) -> None:
        """Calls `then` after a yes."""
        from screens.widgets.dialogs import Confirmation

        self.push_screen(Confirmation(question), lambda sure: then() if sure else None)

    def prompt(
        self,
        question: str,
        then: Callable[[str], None],
        text: str = "",
        complete: Callable[[str], list[str]] | None = None,
        *,
        accepts_empty: bool = False,
        keeps_lines: bool = False,
    ) -> None:
        """Calls `then` with the line that was typed; see `Prompt`."""
        from screens.widgets.dialogs import Prompt

        asked = Prompt(question, text, complete, accepts_empty=accepts_empty, keeps_lines=keeps_lines)
        self.push_screen(asked, lambda words: then(words) if words is not None else None)

    async def carry_out(self, change: Callable[[Session], T]) -> T | None:
        """Runs `change` in a thread, one at a time. On an error, shows it and returns None."""
        from screens import run_calls

        done = None
        async with self._one_change_at_a_time:
            try:
                done = await asyncio.to_thread(run_calls.with_session, self.home, change)
            except (KgopsError, StorageError) as error:
                self.say(error_text(error), "bad")
        self.feed.read_now()
        return done

    def raise_in_app(self, error: BaseException) -> None:
        """Called from another thread: re-raises in the app, so that Textual shows the traceback."""

        def surface() -> None:
            raise error

        self.call_later(surface)


def _send(sequence: str) -> None:
    """To the terminal, by the stream on which Textual draws."""
    if sys.__stderr__ is not None:
        sys.__stderr__.write(sequence)
        sys.__stderr__.flush()


def _dashboard() -> Screen[None]:
    from screens.dashboard import Dashboard

    return Dashboard()


def _be_ready_for_a_run() -> None:
    """Imports what Enter's page is read and drawn with: after the first screen is shown, before a run is opened."""
    import screens.run  # noqa: F401  # for its import alone


def _remember_leaving(home: Home) -> None:
    """So that the next console counts what ended meanwhile. Without a database there is nothing to count."""
    if not home.database.exists():
        return
    from storage import alerts
    from storage.database import open_writer

    try:
        conn = open_writer(home.database, busy_timeout_s=0.5)
        try:
            alerts.leave(conn)
        finally:
            conn.close()
    except StorageError:
        return  # a home that cannot be written, or is busy: what ended is then counted from an earlier time


def open_screens(in_browser: tuple[int, int] | None = None, hosts: Sequence[Host] | None = None) -> int:
    """`kgops tui`: returns the exit code when the app ends, nonzero after a crash.

    `in_browser`: columns and lines of the browser, which can show all Unicode signs."""
    app = KgopsApp(find_home(), unicode=True if in_browser else None, hosts=hosts)
    app.run(size=in_browser)
    return app.return_code or 0
