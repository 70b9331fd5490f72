"""Pane beside a list: the run under the cursor, read by the feed once the cursor rests."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kgops.present.rows import text_row
from screens.feed_state import BesideList, FeedState
from screens.run_actions import ChangesRuns
from screens.widgets.boxes import has_panels
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from kgops.present.rows import Row

_FROM = 160  # columns of the screen
_REST_S = 0.15  # a cursor that passes a run asks for nothing


class HasPane(ChangesRuns):
    """Subclasses compose `Horizontal` of the list and `Lines(id="pane")`."""

    pane_below_from: ClassVar[int | None] = (
        None  # lines from which a narrow screen has the pane below its list
    )
    _beside: BesideList | None = None
    _glance: FeedState | None = None
    _moves = 0

    @property
    def beside(self) -> BesideList | None:
        return self._beside

    def point_pane(self) -> None:
        """Called when the cursor has moved."""
        run = self.subject if self._has_pane else None
        beside = None if run is None else BesideList(run.id)
        if beside == self._beside:
            return
        self._beside = beside
        self._moves += 1
        move = self._moves
        self.set_timer(_REST_S, lambda: self._ask(move))

    @property
    def _has_pane(self) -> bool:
        is_high = self.pane_below_from is not None and self.size.height >= self.pane_below_from
        return self.size.width >= _FROM or (is_high and has_panels(*self.app.size))

    def _ask(self, move: int) -> None:
        if move == self._moves and self.is_current:
            self.ask_feed()
            if self._beside is None:
                self.draw_pane()

    def shows_beside(self, state: FeedState) -> bool:
        """Whether the state was for the pane."""
        if not isinstance(state.wanted, BesideList):
            return False
        if state.wanted == self._beside:
            self._glance = state
            self.draw_pane()
        return True

    def draw_pane(self) -> None:
        self.set_class(self._has_pane, "has-pane")
        self.set_class(self._has_pane and self.size.width < _FROM, "pane-below")
        if self._has_pane:
            pane = self.query_one("#pane", Lines)
            pane.show(self._pane_rows(pane.room, pane.lines_of_room))

    def other_pane(self, width: int, height: int) -> list[Row]:
        """Rows while the cursor is on no run."""
        return [text_row("no run under the cursor", width, "dim")]

    def _pane_rows(self, width: int, height: int) -> list[Row]:
        state = self._glance
        if self._beside is None:
            return self.other_pane(width, height)
        if state is None:
            return [text_row("reading the run …", width, "dim")]
        if state.glance is None:
            return [text_row(state.error_text or "this run is no longer in the record", width, "bad")]
        from screens import beside_page

        return beside_page.rows(state.glance, width, height)
