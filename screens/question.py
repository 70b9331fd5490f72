"""Prompt for one line of text at the bottom of the screen; Escape cancels."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import Input

from kgops.present.rows import text_row
from screens.widgets.lines import Lines
from screens.widgets.text_line import LineInput

_LINE_END = "⏎"  # stands in the line for what separates pasted lines


class _LinesInput(LineInput):
    """Keeps all lines of a pasted text; Textual's keeps the first."""

    def on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self.replace(_LINE_END.join(event.text.splitlines()), *self.selection)


class Prompt(ModalScreen[str | None]):
    BINDINGS = [Binding("escape", "dismiss(None)", "nothing", show=False)]  # noqa: RUF012

    def __init__(self, question: str, *, accepts_empty: bool = False, keeps_lines: bool = False) -> None:
        """With `accepts_empty`, Enter alone returns ""; otherwise it cancels. `keeps_lines`: of a pasted text."""
        super().__init__()
        self._question, self._nothing_counts, self._keeps_lines = question, accepts_empty, keeps_lines

    def compose(self) -> ComposeResult:
        yield Lines(id="question")
        yield _LinesInput() if self._keeps_lines else LineInput()

    def on_mount(self) -> None:
        self.query_one("#question", Lines).show(
            [text_row(f"{self._question} · esc cancel", self.app.size.width, "accent")]
        )
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        text = event.value.replace(_LINE_END, "\n") if self._keeps_lines else event.value
        self.dismiss(text.strip() or ("" if self._nothing_counts else None))
