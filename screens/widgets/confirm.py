"""Confirmation before a deletion: only `y` confirms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from kgops.present.rows import text_rows
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from textual import events


class Confirmation(ModalScreen[bool]):
    BINDINGS = [Binding("y", "dismiss(True)", show=False)]  # noqa: RUF012

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Lines(id="question")

    def on_mount(self) -> None:
        words = f"{self._question} · y yes, any other key no"
        rows, lines = text_rows(words, self.app.size.width, "bad"), self.query_one("#question", Lines)
        lines.styles.height = len(rows)
        lines.show(rows)

    def on_key(self, event: events.Key) -> None:
        if event.key != "y":
            event.stop()
            self.dismiss(False)
