"""Rows whose values the arrow keys change."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from textual.binding import Binding
from textual.geometry import Region

from kgops.present.formats import width_of
from screens.widgets.boxes import EDGES
from screens.widgets.dialogs import FieldEntry
from screens.widgets.lines import Lines


class Choices(Lines):
    """Lines in which left and right change the value of the row: the cell behind the first."""

    BINDINGS = [  # noqa: RUF012
        Binding("left", "screen.less", show=False),
        Binding("right", "screen.more", show=False),
        Binding("enter", "screen.edit", show=False),
    ]

    def enter(
        self,
        key: Hashable,
        now: str,
        then: Callable[[str], None],
        complete: Callable[[str], list[str]] | None = None,
    ) -> None:
        """Calls `then` with what was typed over the value of the row with this key."""
        entry = FieldEntry(partial(self._place_of_value, key, complete is not None), now, complete)
        self.app.push_screen(entry, lambda text: then(text) if text is not None else None)

    def _place_of_value(self, key: Hashable, to_the_end: bool) -> Region:
        line = next((y for y, row in enumerate(self.rows) if row.key == key), 0)
        at = 2 + self.draws_panels  # behind an edge, the first cell and a gap
        x = sum(width_of(piece.text) for piece in self.rows[line].pieces[:at])
        edge = EDGES // 2 if self.draws_panels else 0
        width = self.size.width - x - edge if to_the_end else width_of(self.rows[line].pieces[at].text)
        return Region(self.region.x + x, self.region.y + line - round(self.scroll_y), width, 1)
