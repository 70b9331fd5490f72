"""Lines of text to type in, alone or as a filter above a list whose cursor keys stay usable."""

from __future__ import annotations

from textual import events
from textual.binding import Binding
from textual.geometry import Size
from textual.reactive import Reactive
from textual.widgets import Input

_LINE_END = "⏎"  # stands in the line for what separates pasted lines


class LineInput(Input):
    """Edits in the order typed.

    Textual runs a key's action once the event has gone up to the app, and inserts a letter at once: letters that came
    with a backspace in one piece, as over a slow connection, would overtake it.
    """

    async def on_key(self, event: events.Key) -> None:
        """Runs before the handler of Textual's Input, which inserts letters."""
        found = None if event.is_printable else self.screen.active_bindings.get(event.key)
        if found is None or found.node is not self or "." in found.binding.action:
            return
        if await self.app.run_action(found.binding.action, self):
            event.stop()
            event.prevent_default()


class TypedText(LineInput):
    """Tab calls the screen's `complete`, after the letters before it."""

    BINDINGS = [Binding("tab", "screen.complete", show=False)]  # noqa: RUF012

    @property
    def whole(self) -> str:
        return self.value


class PastedLines(TypedText):
    """Keeps all lines of a pasted text; Textual's keeps the first."""

    @property
    def whole(self) -> str:
        return self.value.replace(_LINE_END, "\n")

    def on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self.replace(_LINE_END.join(event.text.splitlines()), *self.selection)


class FilterInput(LineInput):
    """Escape, Tab and cursor keys call the screen's `leave_filter`, `complete`, `move` and `page`."""

    virtual_size = Reactive(
        Size(0, 0)
    )  # without layout: Textual lays out the screen at every change of length

    BINDINGS = [  # noqa: RUF012
        Binding("escape", "screen.leave_filter", show=False),
        Binding("tab", "screen.complete", show=False),
        Binding("up", "screen.move(-1)", show=False),
        Binding("down", "screen.move(1)", show=False),
        Binding("pageup", "screen.page(-1)", show=False),
        Binding("pagedown", "screen.page(1)", show=False),
    ]
