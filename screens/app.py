"""The application: which screen is shown, what its keys do to runs, and the thread that looks for all of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.app import App, SystemCommand
from textual.message import Message

from kgops.errors import KgopsError
from kgops.settings import Home, find_home
from screens.actions import ACTIONS, bindings, holding
from screens.dashboard import Dashboard
from screens.feed import Feed, Moment
from screens.run_screen import Place
from screens.symbols import PlainSigns, speaks_unicode
from screens.themes import THEMES, Tones, tones_of
from screens.wording import in_full
from storage.errors import StorageError

if TYPE_CHECKING:
    from textual.driver import Driver
    from textual.filter import LineFilter
    from textual.screen import Screen

    from kgops.cli.session import Session
    from screens.benchmarks import Benchmarks
    from screens.history import History

__all__ = ["KgopsApp", "open_screens"]

THEME_VARIABLE = "KGOPS_THEME"
T = TypeVar("T")


class Looked(Message):
    """The feed has something new to show; of several that wait only the newest is worth showing."""

    def __init__(self, moment: Moment) -> None:
        super().__init__()
        self.moment = moment

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Looked)


class KgopsApp(App[None], inherit_bindings=False):
    CSS_PATH = "kgops.tcss"
    BINDINGS: ClassVar = bindings()
    TITLE = "kgops"

    def __init__(self, home: Home, *, unicode: bool | None = None) -> None:
        no_color = os.environ.get("NO_COLOR")
        super().__init__()
        if no_color is not None:  # Textual takes it away, and the runs started from here shall have it
            os.environ["NO_COLOR"] = no_color
        self.home = home
        self.feed = Feed(home, self._post, self._fail)
        self.animation_level = "none"  # every frame of one would go over SSH
        for theme in THEMES.values():
            self.register_theme(theme)
        wanted = f"kgops-{os.environ.get(THEME_VARIABLE, 'dark')}"
        self.set_reactive(App.theme, wanted if wanted in THEMES else "kgops-dark")
        self.stylesheet.set_variables(self.get_css_variables())  # before it is read, not once more after
        self._tones: tuple[str, tuple[Tones, Tones]] | None = None
        self._plain = PlainSigns() if not (speaks_unicode() if unicode is None else unicode) else None
        self._one_change_at_a_time = asyncio.Lock()

    # --- what Textual asks ---

    def get_default_screen(self) -> Screen[None]:
        return Dashboard()

    def get_driver_class(self) -> type[Driver]:
        """Ours for a terminal and for a browser; another one where Textual wants another."""
        wanted = super().get_driver_class()
        if wanted.__name__ == "LinuxDriver":
            from screens.driver import QuietDriver

            return QuietDriver
        if wanted.__name__ == "WebDriver":
            from screens.web_driver import LeavingDriver

            return LeavingDriver
        return wanted

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return filters if self._plain is None else [*filters, self._plain]

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette offers what the keys do, for the screen it was opened from."""
        here = screen if isinstance(screen, Place) else None
        for action in holding(here.place, here.subject) if here is not None else ACTIONS:
            if action.does != "app.command_palette":
                yield SystemCommand(
                    action.name,
                    f"{action.help} ({action.sign})",
                    lambda does=action.does: self.run_action(does),
                )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key does nothing where the table says that it does not hold."""
        return self.here is None or self.here.allows(f"app.{action}")

    def on_mount(self) -> None:
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.call_after_refresh(self.feed.start)  # what is there already is painted first

    def on_unmount(self) -> None:
        self.feed.stop()

    def on_looked(self, message: Looked) -> None:
        if not self.is_running:  # it is being left: its screens lose their parts before they go themselves
            return
        for screen in self.screen_stack:
            if isinstance(screen, Place):
                screen.show_moment(message.moment)

    @property
    def tones(self) -> tuple[Tones, Tones]:
        """Of the theme: what a tone looks like, and the same under the cursor."""
        if self._tones is None or self._tones[0] != self.theme:
            self._tones = (self.theme, tones_of(self.theme))
        return self._tones[1]

    def _post(self, moment: Moment) -> None:
        """Called from the feed's thread."""
        self.post_message(Looked(moment))

    def _fail(self, error: BaseException) -> None:
        """From there too: the traceback comes up where Textual shows those of its own."""

        def surface() -> None:
            raise error

        self.call_later(surface)

    # --- what the keys do ---

    @property
    def here(self) -> Place | None:
        """The screen that keys are meant for; none while a question is being asked."""
        return self.screen if isinstance(self.screen, Place) else None

    def say(self, text: str, tone: str = "strong") -> None:
        if self.here is not None:
            self.here.say(text, tone)

    def action_open(self) -> None:
        if self.here is not None and self.here.subject is not None:
            from screens.run import RunScreen

            self.push_screen(RunScreen(self.here.subject))

    async def action_back(self) -> None:
        if len(self.screen_stack) > 1:
            await self.pop_screen()

    def action_new(self) -> None:
        from screens.new_run import NewRun

        self.feed.start()  # a key that comes before the first paint takes its turn away
        self.push_screen(NewRun())

    def action_influences(self) -> None:
        from screens.influences import TRACES, Influences

        run = self.here.subject if self.here is not None else None
        self.feed.start()
        self.push_screen(Influences(run if run is not None and run.workload in TRACES else None))

    async def action_history(self) -> None:
        from screens.history import History

        await self._go_back_to_or_open(History)

    async def action_benchmarks(self) -> None:
        from screens.benchmarks import Benchmarks

        await self._go_back_to_or_open(Benchmarks)

    async def _go_back_to_or_open(self, kind: type[History] | type[Benchmarks]) -> None:
        """The one that is open below, or a new one."""
        self.feed.start()
        below = [isinstance(screen, kind) for screen in reversed(self.screen_stack)]
        if True not in below:
            self.push_screen(kind(self))
        for _ in range(below.index(True) if True in below else 0):
            await self.pop_screen()

    def action_profiles(self) -> None:
        from screens.profiles import Profiles

        self.feed.start()
        self.push_screen(Profiles())

    def action_pause(self) -> None:
        self.feed.pause(not self.feed.paused)
        for screen in self.screen_stack:
            if isinstance(screen, Place):
                screen.show_title()

    def action_colours(self) -> None:
        names = list(THEMES)
        self.theme = names[(names.index(self.theme) + 1) % len(names)] if self.theme in names else names[0]
        for screen in self.screen_stack:
            screen.refresh(layout=True)
            for widget in screen.query("Lines"):
                widget.refresh()
        self.say(f"theme {self.theme.removeprefix('kgops-')}; {THEME_VARIABLE} sets it for good")

    def action_help(self) -> None:
        from screens.help import HelpScreen

        if self.here is not None:
            self.push_screen(HelpScreen(self.here.place, self.here.subject))

    async def carry_out(self, change: Callable[[Session], T]) -> T | None:
        """In a thread, one after the other; where it cannot be done, why not is said and None comes back."""
        from screens import run_calls

        done = None
        async with self._one_change_at_a_time:
            try:
                done = await asyncio.to_thread(run_calls.with_session, self.home, change)
            except (KgopsError, StorageError) as error:
                self.say(in_full(error), "bad")
        self.feed.look_now()
        return done


def open_screens(in_browser: tuple[int, int] | None = None) -> int:
    """`kgops tui`: comes back when the person leaves, with 0, or when the screens crash, with another exit code.

    A browser tells its columns and lines, and has all signs."""
    app = KgopsApp(find_home(), unicode=True if in_browser else None)
    app.run(size=in_browser)
    return app.return_code or 0
