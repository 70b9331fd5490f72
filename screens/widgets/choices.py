"""Rows whose values the arrow keys change."""

from __future__ import annotations

from textual.binding import Binding

from screens.widgets.lines import Lines


class Choices(Lines):
    """Lines in which left and right change the value of the row."""

    BINDINGS = [  # noqa: RUF012
        Binding("left", "screen.less", show=False),
        Binding("right", "screen.more", show=False),
        Binding("enter", "screen.edit", show=False),
    ]
