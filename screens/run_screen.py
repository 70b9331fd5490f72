"""Base class of all full screens: title, footer, selected run and key actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.messages import Update
from textual.screen import Screen

from kgops.present.rows import Piece, Row
from screens.actions import ACTIONS, Action, Needs, ScreenName, holding
from screens.background import begin
from screens.widgets.boxes import has_panels
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgops.cli.session import Session
    from screens.app import KgopsApp
    from screens.copying import Copyable
    from screens.feed_state import BesideList, FeedState, Wanted
    from storage.runs import Run

_FIRST_ROWS_S = 0.05  # in which a screen has read its first rows
_SHORT = 30  # terminal lines; below this, blank lines are dropped


class RunScreenBase(Screen[None]):
    """Subclasses name what they want from the feed and draw its states."""

    screen_name: ClassVar[ScreenName]
    AUTO_FOCUS = "#body"

    @property
    def kgops(self) -> KgopsApp:
        return cast("KgopsApp", self.app)

    @property
    def wanted(self) -> Wanted:
        """What the feed reads while this screen is in front."""
        raise NotImplementedError

    @property
    def beside(self) -> BesideList | None:
        """The run that the feed reads besides, for a pane."""
        return None

    @property
    def subject(self) -> Run | None:
        """The run that keys act on."""
        raise NotImplementedError

    @property
    def host_here(self) -> str | None:
        """Name of the host that the cursor is on; None: this machine."""
        return None

    @property
    def gpu_here(self) -> str | None:
        """What `--gpu` calls the GPU that the cursor is on."""
        return None

    def open_new_run(self) -> None:
        """Opens New run for what the cursor is on."""
        self.kgops.open_new_run(self.gpu_here, self.host_here)

    def start_and_open(
        self, change: Callable[[Session], Run | None], opened: Callable[[Run], Screen[None]] | None = None
    ) -> None:
        """Opens the run that `change` starts, unless a person has left meanwhile. `opened`: not its page, this."""

        async def start() -> None:
            run = await self.kgops.carry_out(change)
            if run is None or self.app.screen is not self:
                return
            if opened is None:
                self.kgops.open_run(run)
            else:
                self.app.push_screen(opened(run))

        begin(self.app, start)

    def title_row(self, width: int) -> Row:
        raise NotImplementedError

    def show_state(self, state: FeedState) -> None:
        raise NotImplementedError

    def say(self, text: str, tone: str) -> None:
        self.query_one(Keys).say(text, tone)

    def allows(self, does: str) -> bool:
        """Whether an action applies now; actions outside the table always do."""
        entry = next((action for action in ACTIONS if action.does == does), None)
        if entry is None:
            return True
        if entry.needs in ("row", "chart"):
            return self.screen_name in entry.where and self.has(entry.needs)
        return entry.holds(self.screen_name, None if entry.needs == "nothing" else self.subject)

    def has(self, needed: Needs) -> bool:
        """Whether there is a row to open, or a chart to mark."""
        return self.opens if needed == "row" else True

    @property
    def opens(self) -> bool:
        """Whether Enter opens something."""
        return self.subject is not None

    def open_chosen(self) -> None:
        """Opens what is under the cursor."""
        if self.subject is not None:
            self.kgops.open_run(self.subject)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ignores keys whose action does not apply here."""
        return self.allows(f"screen.{action}")

    @property
    def offered(self) -> list[Action]:
        """Actions that apply now."""
        return [
            action
            for action in holding(self.screen_name, self.subject)
            if action.needs not in ("row", "chart") or self.has(action.needs)
        ]

    @property
    def copyable(self) -> list[Copyable]:
        """What `y` offers to copy."""
        from screens.copying import of_run

        run = self.subject
        return [] if run is None else of_run(run, str(self.kgops.home.runs / run.folder))

    def action_copy(self) -> None:
        from screens.copying import offer

        offer(self.kgops, self.copyable)

    def show_title(self) -> None:
        title = self.query_one("#title", Lines)
        paused = (Piece("  paused", "warn"),) if self.kgops.feed.paused else ()
        row = self.title_row((title.size.width or self.size.width) - sum(len(one.text) for one in paused))
        title.show([row._replace(pieces=(*row.pieces, *paused))])
        self.query_one(Keys).offer(self.offered)

    def on_resize(self) -> None:
        """Textual calls a subclass's handler first, then this one."""
        self._set_classes()
        self.draw()

    def _set_classes(self) -> None:
        size = self.app.size
        self.set_class(size.height < _SHORT, "short")
        self.set_class(has_panels(*size), "roomy")

    def on_lines_resized(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Redraws the screen from the last state."""
        raise NotImplementedError

    def ask_feed(self) -> None:
        self.kgops.feed.want(self, self.wanted, self.beside)

    def on_mount(self) -> None:
        """Textual calls this after a subclass's handler. Its frame and its first rows are painted as one, and once:
        Textual would paint what it laid out anew, and then all of the screen."""
        self.set_timer(_FIRST_ROWS_S, lambda: self.post_message(Update(self)))
        self.app.delay_update(_FIRST_ROWS_S)
        self._set_classes()

    def on_screen_resume(self) -> None:
        self.ask_feed()
        self.show_title()
