"""One line to type in, above rows that can be moved through meanwhile."""

from __future__ import annotations

from textual.binding import Binding
from textual.geometry import Size
from textual.reactive import Reactive
from textual.widgets import Input

__all__ = ["Typed"]


class Typed(Input):
    """Escape, Tab and the keys that move are the screen's: `leave_filter`, `complete`, `move` and `page`."""

    virtual_size = Reactive(
        Size(0, 0)
    )  # Textual lays out the whole screen again for every other length of it

    BINDINGS = [  # noqa: RUF012
        Binding("escape", "screen.leave_filter", show=False),
        Binding("tab", "screen.complete", show=False),
        Binding("up", "screen.move(-1)", show=False),
        Binding("down", "screen.move(1)", show=False),
        Binding("pageup", "screen.page(-1)", show=False),
        Binding("pagedown", "screen.page(1)", show=False),
    ]
