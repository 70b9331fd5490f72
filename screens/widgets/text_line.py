"""Filter input above a list whose cursor keys stay usable."""

from __future__ import annotations

from textual.binding import Binding
from textual.geometry import Size
from textual.reactive import Reactive
from textual.widgets import Input

__all__ = ["FilterInput"]


class FilterInput(Input):
    """Escape, Tab and cursor keys call the screen's `leave_filter`, `complete`, `move` and `page`."""

    virtual_size = Reactive(
        Size(0, 0)
    )  # without layout: Textual lays out the screen at every change of length

    BINDINGS = [  # noqa: RUF012
        Binding("escape", "screen.leave_filter", show=False),
        Binding("tab", "screen.complete", show=False),
        Binding("up", "screen.move(-1)", show=False),
        Binding("down", "screen.move(1)", show=False),
        Binding("pageup", "screen.page(-1)", show=False),
        Binding("pagedown", "screen.page(1)", show=False),
    ]
