"""Questions in a box above the screen: yes or no, one of some letters, and a line of text."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen

from kgops.present.rows import BLANK, Piece, Row, text_row, text_rows
from screens.background import begin
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from textual import events
    from textual.geometry import Region
    from textual.widgets import Input

    from screens.widgets.text_line import TypedText

Answer = TypeVar("Answer")
_WIDEST, _EDGES = 100, 6  # columns of a box; those of its border and padding
_MATCHES = 6  # lines


class Dialog(ModalScreen[Answer]):
    """A titled box with rows of text; subclasses say which."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = self._title
            yield Lines(id="question")

    def on_mount(self) -> None:
        self.ask()

    def on_resize(self) -> None:
        self.ask()

    def ask(self) -> None:
        width = min(self.app.size.width, _WIDEST)
        self.query_one("#box").styles.width = width
        self.put("#question", list(self.rows(width - _EDGES)))

    def put(self, where: str, rows: Sequence[Row]) -> None:
        lines = self.query_one(where, Lines)
        lines.styles.height = len(rows)
        lines.display = bool(rows)
        lines.show(rows)

    def rows(self, width: int) -> Iterator[Row]:
        raise NotImplementedError


class Confirmation(Dialog[bool]):
    """`question` names the job."""

    BINDINGS: ClassVar = [
        Binding("y,enter", "dismiss(True)", show=False),
        Binding("n,escape,q", "dismiss(False)", show=False),
    ]

    def __init__(self, question: str) -> None:
        super().__init__("sure?")
        self._question = question

    def rows(self, width: int) -> Iterator[Row]:
        yield from text_rows(self._question, width, "strong")
        yield BLANK
        yes, no = "screen.dismiss(True)", "screen.dismiss(False)"
        yield Row(
            (
                *(Piece("y", "accent", yes), Piece(" yes    ", "text", yes)),
                *(Piece("n", "accent", no), Piece(" no", "text", no)),
            )
        )


class CopyChoice(Dialog[str]):
    """A letter for each text; any other key copies nothing."""

    def __init__(self, texts: Sequence[tuple[str, str, str]]) -> None:
        """Of each text its letter, its name and the text."""
        super().__init__("copy")
        self._texts = texts

    def rows(self, width: int) -> Iterator[Row]:
        for key, name, text in self._texts:
            act = f"screen.dismiss({key!r})"
            shown = text_row(f" {name:<16} {text}", width - 1, "text").pieces[0]
            yield Row((Piece(key, "accent", act), shown._replace(action=act)))
        yield text_row("any other key: nothing", width, "dim")

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self.dismiss(event.key)


class Prompt(Dialog[str | None]):
    """Returns a line of text, None after Escape.

    `accepts_empty`: Enter without a word returns "", otherwise it cancels. `keeps_lines`: of a pasted text.
    `complete` gives what a beginning can become; it is called in a thread."""

    BINDINGS: ClassVar = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(
        self,
        question: str,
        text: str = "",
        complete: Callable[[str], list[str]] | None = None,
        *,
        accepts_empty: bool = False,
        keeps_lines: bool = False,
    ) -> None:
        super().__init__("⏎ takes it · esc cancels")
        self._question, self._text, self._complete = question, text, complete
        self._accepts_empty, self._keeps_lines = accepts_empty, keeps_lines

    def compose(self) -> ComposeResult:
        from screens.widgets.text_line import PastedLines, TypedText

        with Vertical(id="box") as box:
            box.border_title = self._title
            yield Lines(id="question")
            typed = PastedLines if self._keeps_lines else TypedText
            yield typed(self._text, select_on_focus=False)
            yield Lines(id="matches")

    def rows(self, width: int) -> Iterator[Row]:
        yield from text_rows(self._question, width, "strong")

    def on_mount(self) -> None:
        super().on_mount()
        self._show([])
        self.query_one("Input").focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        typed = cast("TypedText", event.input)
        self.dismiss(typed.whole.strip() or ("" if self._accepts_empty else None))

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._complete is not None:
            begin(self, partial(self._suggest, event.value), instead="suggestions")

    async def _suggest(self, text: str) -> None:
        matches = await self._matches(text)
        self._show(matches if matches != [text] else [])

    async def action_complete(self) -> None:
        """Inserts the common beginning of all that the text can become."""
        from textual.widgets import Input

        entry = self.query_one(Input)
        text = entry.value
        matches = await self._matches(text)
        common = os.path.commonprefix(matches)  # noqa: RUF071 - by characters, as in a shell
        if entry.value == text and len(common) > len(text):
            entry.value = common
            entry.cursor_position = len(common)

    async def _matches(self, text: str) -> list[str]:
        return await asyncio.to_thread(self._complete, text) if self._complete is not None else []

    @property
    def room(self) -> int:
        return min(self.app.size.width, _WIDEST) - _EDGES

    def _show(self, matches: list[str]) -> None:
        width = self.room
        rows = [text_row(text, width) for text in matches[:_MATCHES]]
        if len(matches) > _MATCHES:
            rows[-1] = text_row(f"and {len(matches) - _MATCHES + 1:,} more; tab completes", width, "dim")
        self.put("#matches", rows)


class FieldEntry(Prompt):
    """In the place of a field, with what its text can become below."""

    def __init__(
        self, place: Callable[[], Region], text: str, complete: Callable[[str], list[str]] | None
    ) -> None:
        super().__init__("", text, complete, accepts_empty=True)
        self._place = place

    @property
    def room(self) -> int:
        return self._place().width

    def ask(self) -> None:
        place, box = self._place(), self.query_one("#box").styles
        box.width, box.offset = place.width, (place.x, place.y)
        self.put("#question", [])
