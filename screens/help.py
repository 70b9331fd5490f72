"""Help screen: keys of the current screen and the meaning of signs."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from screens.actions import ACTIONS, ScreenName, holding
from screens.rows import BLANK, Piece, Row, text_row
from screens.widgets.lines import Lines
from storage.runs import Run

__all__ = ["HelpScreen"]

_MOVING = (
    ("↑ ↓", "Move the cursor, as do j and k."),
    ("PgUp PgDn", "Page up or down."),
    ("g G", "First or last row, as do Home and End."),
    ("mouse", "Click to move the cursor, click again to open; wheel to scroll."),
)
_IN_THE_LOG = (
    ("n N", "Next or previous search hit; without a search, warning or error."),
    ("← →", "Scroll long lines sideways by half a screen."),
    ("L", "All lines, warnings and errors, or errors only."),
)
_SIGNS = (
    ("✓", "good", "succeeded"),
    ("▼", "warn", "succeeded after an OOM fallback"),
    ("■", "dim", "stopped"),
    ("✗", "bad", "failed, out of memory, interrupted"),
    ("!", "warn", "an alert: it needs a person, and stays until it is acknowledged"),
    ("▇ ▓ ▒", "text", "GPU memory that runs use, that others use, that is used by nobody knows whom"),
    ("░ ┄", "accent", "GPU memory that runs reserve besides, that the next waiting run is predicted to need"),
)


class HelpScreen(ModalScreen[None]):
    BINDINGS = [  # noqa: RUF012
        Binding("escape,q,question_mark,enter", "dismiss", "back", show=False)
    ]

    def __init__(self, screen_name: ScreenName, run: Run | None) -> None:
        super().__init__()
        self._screen_name, self._run = screen_name, run

    def compose(self) -> ComposeResult:
        yield Lines(id="body", scrolls=True)
        yield Lines(id="keys")

    def on_mount(self) -> None:
        now = list(holding(self._screen_name, self._run))
        rows = [text_row("KEYS HERE", 80, "head")]
        rows += [_entry(action.sign, f"{action.name:<12}{action.help}") for action in now]
        rows += [BLANK, text_row("MOVING", 80, "head"), *(_entry(sign, text) for sign, text in _MOVING)]
        if self._screen_name == "run":
            rows += [
                BLANK,
                text_row("IN THE LOG", 80, "head"),
                *(_entry(sign, text) for sign, text in _IN_THE_LOG),
            ]
        later = [action for action in ACTIONS if self._screen_name in action.where and action not in now]
        if later:
            rows += [BLANK, text_row("KEYS FOR OTHER RUNS", 80, "head")]
            rows += [_entry(action.sign, f"{action.name:<12}{action.help}", "dim") for action in later]
        rows += [BLANK, text_row("SIGNS", 80, "head")]
        rows += [_entry(sign, text, tone) for sign, tone, text in _SIGNS]
        self.query_one("#body", Lines).show(rows)
        self.query_one("#keys", Lines).show(
            [Row((Piece("esc", "accent", "screen.dismiss"), Piece(" back", "dim")))]
        )


def _entry(sign: str, text: str, tone: str = "accent") -> Row:
    return Row((Piece(f"  {sign:<11}", tone), Piece(text, "text")))
