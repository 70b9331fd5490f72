"""What is sent to the terminal: of a line that changed only the columns that did.

Textual 8.2 knows which columns have to be painted and yet sends each line from its widget's left edge on, for
every span of it anew: five times as much for the dashboard. Over SSH that is what a screen costs.
"""

from __future__ import annotations

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor
from textual._styles_cache import StylesCache

__all__ = ["FrugalCompositor", "forget_what_left"]


def forget_what_left() -> None:
    """Called when a screen has left: Textual 8.2 keeps what its last thousand widgets painted, gone or not.

    Its cache of two colours has the widget's own cache in the key: 160 KiB and more each time a screen was opened.
    """
    cached = getattr(StylesCache.get_inner_outer, "cache_clear", None)
    if cached is not None:
        cached()


class FrugalCompositor(Compositor):
    """In place of a screen's own. Should Textual stop asking for such updates, more is sent and nothing breaks."""

    def render_partial_update(self) -> ChopsUpdate | None:
        update = super().render_partial_update()
        if type(update) is not ChopsUpdate:
            return update
        return _ChangedColumns(update.chops, update.spans, update.chop_ends)


class _ChangedColumns(ChopsUpdate):
    def render_segments(self, console: Console) -> str:
        out: list[str] = []
        for y, left, right in self.spans:
            for end, (start, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or start >= right or end <= left:
                    continue
                first = max(start, left)
                changed = strip.crop(first - start, min(end, right) - start).simplify()
                out += [Control.move_to(first, y).segment.text, changed.render(console)]
        return "".join(out)
