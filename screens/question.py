"""One question, answered in one line at the bottom; Escape answers nothing."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import Input

from screens.rows import said
from screens.widgets.lines import Lines

__all__ = ["Ask"]


class Ask(ModalScreen[str | None]):
    BINDINGS = [Binding("escape", "dismiss(None)", "nothing", show=False)]  # noqa: RUF012

    def __init__(self, question: str, *, nothing_counts: bool = False) -> None:
        """With `nothing_counts`, Enter alone is the answer "" and no answer is only Escape."""
        super().__init__()
        self._question, self._nothing_counts = question, nothing_counts

    def compose(self) -> ComposeResult:
        yield Lines(id="question")
        yield Input()

    def on_mount(self) -> None:
        self.query_one("#question", Lines).show(
            [said(f"{self._question} · esc leaves it", self.app.size.width, "accent")]
        )
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or ("" if self._nothing_counts else None))
