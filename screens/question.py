"""Prompt for one line of text at the bottom of the screen; Escape cancels."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import Input

from screens.rows import text_row
from screens.widgets.lines import Lines

__all__ = ["Prompt"]


class Prompt(ModalScreen[str | None]):
    BINDINGS = [Binding("escape", "dismiss(None)", "nothing", show=False)]  # noqa: RUF012

    def __init__(self, question: str, *, accepts_empty: bool = False) -> None:
        """With `accepts_empty`, Enter alone returns ""; otherwise it cancels."""
        super().__init__()
        self._question, self._nothing_counts = question, accepts_empty

    def compose(self) -> ComposeResult:
        yield Lines(id="question")
        yield Input()

    def on_mount(self) -> None:
        self.query_one("#question", Lines).show(
            [text_row(f"{self._question} · esc cancel", self.app.size.width, "accent")]
        )
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or ("" if self._nothing_counts else None))
