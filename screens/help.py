"""Help screen: keys of the current screen and the meaning of signs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from kgops.present.formats import wrapped
from kgops.present.rows import BLANK, Piece, Row, text_row
from screens.actions import ACTIONS, Action, ScreenName, holding
from screens.widgets.lines import Lines
from storage.runs import Run

_SIGN = 13  # columns of a key or sign
_MOVING = (
    ("↑ ↓", "Move the cursor, as do j and k."),
    ("PgUp PgDn", "Page up or down."),
    ("g G", "First or last row, as do Home and End."),
    ("mouse", "Click to move the cursor, click again to open; wheel to scroll."),
)
_IN_THE_DETAILS = (
    ("PgUp PgDn", "Scroll the details below the list, as do g and G to their beginning and end."),
)
_IN_THE_LOG = (
    ("] [", "Next or previous search hit; without a search, warning or error."),
    ("← →", "Scroll long lines sideways by half a screen."),
    ("L", "All lines, warnings and errors, or errors only."),
)
_SIGNS = (
    ("✓", "good", "succeeded"),
    ("▼", "warn", "succeeded after an OOM fallback"),
    ("■", "dim", "stopped"),
    ("✗", "bad", "failed, out of memory, interrupted"),
    ("!", "warn", "an alert: it needs a person, and stays until it is acknowledged"),
    ("▇", "good", "GPU memory that runs use; yellow: less than a quarter is free; red: at most a tenth"),
    ("▓", "good-others", "GPU memory that others use"),
    ("░", "good-reserved", "GPU memory that runs reserve besides"),
    ("▒", "text", "GPU memory whose user is unknown"),
    ("┄", "text", "GPU memory that the next waiting run is predicted to need"),
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
        self.query_one("#keys", Lines).show(
            [Row((Piece("esc", "accent", "screen.dismiss"), Piece(" back", "dim")))]
        )
        self.on_resize()

    def on_resize(self) -> None:
        self.query_one("#body", Lines).show(list(self._rows(self.app.size.width)))

    def _rows(self, width: int) -> Iterator[Row]:
        now = [action for action in holding(self._screen_name, self._run) if action.sign]
        yield text_row("SIGNS", width, "head")
        for sign, tone, text in _SIGNS:
            yield from _entry(sign, "", text, width, tone)
        sections: list[tuple[str, Iterable[tuple[str, str, str]], str]] = [
            ("KEYS HERE", map(_named, now), "accent"),
            ("MOVING", ((sign, "", text) for sign, text in _MOVING), "accent"),
        ]
        if self._screen_name == "run":
            sections.append(("IN THE LOG", ((sign, "", text) for sign, text in _IN_THE_LOG), "accent"))
        if self._screen_name == "explanation":
            sections.append(
                ("IN THE DETAILS", ((sign, "", text) for sign, text in _IN_THE_DETAILS), "accent")
            )
        here = [action for action in ACTIONS if self._screen_name in action.where and action.sign]
        later = [action for action in here if action not in now]
        if later:
            sections.append(("KEYS FOR OTHER RUNS", map(_named, later), "dim"))
        for head, entries, tone in sections:
            yield BLANK
            yield text_row(head, width, "head")
            for sign, name, text in entries:
                yield from _entry(sign, name, text, width, tone)


def _named(action: Action) -> tuple[str, str, str]:
    return action.sign, f"{action.name:<12} ", action.help


def _entry(sign: str, name: str, text: str, width: int, tone: str) -> Iterator[Row]:
    """Texts that are too long go on below themselves."""
    room = width - _SIGN - len(name) - 2  # beside the sign of more below
    first, *more = wrapped(text, room)
    yield Row((Piece(f"  {sign:<{_SIGN - 2}}", tone), Piece(f"{name}{first}", "text")))
    for line in more:
        yield Row((Piece(" " * (_SIGN + len(name))), Piece(line, "text")))
