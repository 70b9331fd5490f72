"""Rows whose values left and right change, and one line to write a value in, with Tab to complete a path."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import Input

from screens.rows import Row, said
from screens.widgets.lines import Lines

__all__ = ["Choices", "Filling"]

_SHOWN = 6


class Choices(Lines):
    """What scrolls sideways elsewhere chooses here."""

    BINDINGS = [  # noqa: RUF012
        Binding("left", "screen.less", show=False),
        Binding("right", "screen.more", show=False),
        Binding("enter", "screen.edit", show=False),
    ]


class Filling(ModalScreen[str | None]):
    """The text that was written, also an empty one; Escape leaves things as they are."""

    BINDINGS = [  # noqa: RUF012
        Binding("escape", "dismiss(None)", show=False),
        Binding("tab", "complete", show=False, priority=True),
    ]

    def __init__(self, question: str, text: str, complete: Callable[[str], list[str]] | None) -> None:
        super().__init__()
        self._question, self._text, self._complete = question, text, complete

    def compose(self) -> ComposeResult:
        yield Lines(id="found")
        yield Lines(id="question")
        yield Input(self._text, select_on_focus=False)

    def on_mount(self) -> None:
        tab = " · tab completes it" if self._complete is not None else ""
        question = said(f"{self._question}{tab} · esc", self.app.size.width, "accent")
        self.query_one("#question", Lines).show([question])
        self.query_one("#found").display = False
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    async def action_complete(self) -> None:
        """As far as all that is there agrees; then what there is to choose from."""
        if self._complete is None:
            return
        entry = self.query_one(Input)
        text = entry.value
        found = await asyncio.to_thread(self._complete, text)
        if entry.value != text:
            return  # somebody typed on
        common = os.path.commonprefix(found)  # noqa: RUF071 - by characters, as in a shell
        if len(common) > len(text):
            entry.value = common
            entry.cursor_position = len(common)
        self._show(found if len(found) != 1 else [])

    def _show(self, found: list[str]) -> None:
        width = self.app.size.width
        rows: list[Row] = [said(text, width) for text in found[:_SHOWN]]
        if len(found) > _SHOWN:
            rows[-1] = said(f"and {len(found) - _SHOWN + 1:,} more", width, "dim")
        there = self.query_one("#found", Lines)
        there.display = bool(rows)
        there.styles.height = max(len(rows), 1)
        there.show(rows)
