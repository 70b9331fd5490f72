"""Rows whose values the arrow keys change, and a prompt for a value with Tab completion."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import Input

from kgops.present.rows import Row, text_row
from screens.widgets.lines import Lines
from screens.widgets.text_line import LineInput

_SHOWN = 6


class Choices(Lines):
    """Lines in which left and right change the value of the row."""

    BINDINGS = [  # noqa: RUF012
        Binding("left", "screen.less", show=False),
        Binding("right", "screen.more", show=False),
        Binding("enter", "screen.edit", show=False),
    ]


class CompletingPrompt(ModalScreen[str | None]):
    """Returns the typed text, which may be empty; Escape cancels."""

    BINDINGS = [  # noqa: RUF012
        Binding("escape", "dismiss(None)", show=False),
        Binding("tab", "complete", show=False, priority=True),
    ]

    def __init__(self, question: str, text: str, complete: Callable[[str], list[str]] | None) -> None:
        super().__init__()
        self._question, self._text, self._complete = question, text, complete

    def compose(self) -> ComposeResult:
        yield Lines(id="matches")
        yield Lines(id="question")
        yield LineInput(self._text, select_on_focus=False)

    def on_mount(self) -> None:
        tab = " · tab complete" if self._complete is not None else ""
        question = text_row(f"{self._question}{tab} · esc cancel", self.app.size.width, "accent")
        self.query_one("#question", Lines).show([question])
        self.query_one("#matches").display = False
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    async def action_complete(self) -> None:
        """Inserts the common prefix of all completions, then lists them."""
        if self._complete is None:
            return
        entry = self.query_one(Input)
        text = entry.value
        matches = await asyncio.to_thread(self._complete, text)
        if entry.value != text:
            return  # the text changed meanwhile
        common = os.path.commonprefix(matches)  # noqa: RUF071 - by characters, as in a shell
        if len(common) > len(text):
            entry.value = common
            entry.cursor_position = len(common)
        self._show(matches if len(matches) != 1 else [])

    def _show(self, matches: list[str]) -> None:
        width = self.app.size.width
        rows: list[Row] = [text_row(text, width) for text in matches[:_SHOWN]]
        if len(matches) > _SHOWN:
            rows[-1] = text_row(f"and {len(matches) - _SHOWN + 1:,} more", width, "dim")
        list_widget = self.query_one("#matches", Lines)
        list_widget.display = bool(rows)
        list_widget.styles.height = max(len(rows), 1)
        list_widget.show(rows)
