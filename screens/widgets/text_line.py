"""Lines of text to type in, alone or as a filter above a list whose cursor keys stay usable."""

from __future__ import annotations

from textual import events
from textual.binding import Binding
from textual.geometry import Size
from textual.reactive import Reactive
from textual.widgets import Input


class LineInput(Input):
    """Edits in the order typed.

    Textual runs a key's action once the event has gone up to the app, and inserts a letter at once: letters that came
    with a backspace in one piece, as over a slow connection, would overtake it.
    """

    async def _on_key(self, event: events.Key) -> None:
        bindings = () if event.is_printable else self._bindings.key_to_bindings.get(event.key, ())
        for binding in bindings:
            if "." not in binding.action and await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return


class TypedText(LineInput):
    """Tab calls the screen's `complete`, after the letters before it."""

    BINDINGS = [Binding("tab", "screen.complete", show=False)]  # noqa: RUF012


class PastedLines(TypedText):
    """Keeps all lines of a pasted text; Textual's keeps the first."""

    def on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self.replace("⏎".join(event.text.splitlines()), *self.selection)


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
