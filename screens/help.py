"""What can be done here: the table of actions as a page."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from screens.actions import ACTIONS, Place, holding
from screens.rows import BLANK, Piece, Row, said
from screens.widgets.lines import Lines
from storage.runs import Run

__all__ = ["HelpScreen"]

_MOVING = (
    ("↑ ↓", "Move the cursor; j and k do too."),
    ("PgUp PgDn", "A page up or down."),
    ("g G", "To the beginning, to the end; Home and End do too."),
    ("mouse", "A click moves the cursor, a second one opens; the wheel scrolls."),
)
_IN_THE_LOG = (
    ("n N", "The next line of a search, or before; else of what sounds bad."),
    ("← →", "Half a screen to the side, on lines that are longer."),
    ("L", "Bad lines alone, or all again; one stays where one was brought to."),
)
_SIGNS = (
    ("✓", "good", "succeeded"),
    ("▼", "warn", "succeeded with less than was asked, or out of memory on the way"),
    ("■", "dim", "stopped"),
    ("✗", "bad", "failed, out of memory, interrupted"),
    ("!", "warn", "somebody should look"),
)


class HelpScreen(ModalScreen[None]):
    BINDINGS = [  # noqa: RUF012
        Binding("escape,q,question_mark,enter", "dismiss", "back", show=False)
    ]

    def __init__(self, place: Place, run: Run | None) -> None:
        super().__init__()
        self._place, self._run = place, run

    def compose(self) -> ComposeResult:
        yield Lines(id="body", scrolls=True)
        yield Lines(id="keys")

    def on_mount(self) -> None:
        now = list(holding(self._place, self._run))
        rows = [said("KEYS HERE", 80, "head")]
        rows += [_entry(action.sign, f"{action.name:<12}{action.help}") for action in now]
        rows += [BLANK, said("MOVING", 80, "head"), *(_entry(sign, text) for sign, text in _MOVING)]
        if self._place == "run":
            rows += [
                BLANK,
                said("IN THE LOG", 80, "head"),
                *(_entry(sign, text) for sign, text in _IN_THE_LOG),
            ]
        later = [action for action in ACTIONS if self._place in action.where and action not in now]
        if later:
            rows += [BLANK, said("WITH ANOTHER RUN UNDER THE CURSOR", 80, "head")]
            rows += [_entry(action.sign, f"{action.name:<12}{action.help}", "dim") for action in later]
        rows += [BLANK, said("SIGNS", 80, "head")]
        rows += [_entry(sign, text, tone) for sign, tone, text in _SIGNS]
        self.query_one("#body", Lines).show(rows)
        self.query_one("#keys", Lines).show(
            [Row((Piece("esc", "accent", "screen.dismiss"), Piece(" back", "dim")))]
        )


def _entry(sign: str, text: str, tone: str = "accent") -> Row:
    return Row((Piece(f"  {sign:<11}", tone), Piece(text, "text")))
