"""What all screens that show runs have in common: a title, a footer, a run that keys are meant for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.screen import Screen

from screens.actions import ACTIONS, Action, holding
from screens.actions import Place as Where
from screens.painting import FrugalCompositor, forget_what_left
from screens.rows import Row
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from screens.app import KgopsApp
    from screens.feed import Moment, Wanted
    from storage.runs import Run

__all__ = ["Place"]


_SHORT = 30  # lines of a terminal below which every one counts


class Place(Screen[None]):
    """Subclasses say what they want from the feed, and how a moment looks as rows."""

    place: ClassVar[Where]
    AUTO_FOCUS = "#body"

    def __init__(self) -> None:
        super().__init__()
        self._compositor = FrugalCompositor()

    @property
    def kgops(self) -> KgopsApp:
        return cast("KgopsApp", self.app)

    @property
    def wanted(self) -> Wanted:
        """What the feed looks at while this screen is in front."""
        raise NotImplementedError

    @property
    def subject(self) -> Run | None:
        """The run that keys are meant for."""
        raise NotImplementedError

    def title_row(self, width: int) -> Row:
        raise NotImplementedError

    def show_moment(self, moment: Moment) -> None:
        raise NotImplementedError

    def say(self, text: str, tone: str) -> None:
        self.query_one(Keys).say(text, tone)

    def allows(self, does: str) -> bool:
        """What is not in the table of actions is not forbidden by it."""
        known = next((action for action in ACTIONS if action.does == does), None)
        return known is None or known.holds(self.place, None if known.needs == "nothing" else self.subject)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key does nothing where the table says that it does not hold."""
        return self.allows(f"screen.{action}")

    @property
    def offered(self) -> list[Action]:
        """What can be done right now."""
        return list(holding(self.place, self.subject))

    def show_title(self) -> None:
        self.query_one("#title", Lines).show([self.title_row(self.size.width)])
        self.query_one(Keys).offer(self.offered)

    def on_resize(self) -> None:
        """Textual calls what a subclass has before, not in its place."""
        self.set_class(self.size.height < _SHORT, "short")
        self.draw()

    def draw(self) -> None:
        """All of it again, from what was shown last."""
        raise NotImplementedError

    def on_unmount(self) -> None:
        forget_what_left()

    def on_screen_resume(self) -> None:
        self.kgops.feed.want(self.wanted)
        self.show_title()
