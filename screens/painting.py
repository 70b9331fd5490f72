"""Compositor that sends only the changed columns of a line to the terminal.

Textual 8.2 knows which columns changed, yet sends each line from its widget's left edge on, once for every
changed span: five times as many bytes for the dashboard. Over SSH these bytes are the cost of a screen.
"""

from __future__ import annotations

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor
from textual._styles_cache import StylesCache

__all__ = ["ChangedColumnsCompositor", "drop_style_caches"]


def drop_style_caches() -> None:
    """Called when a screen closes: Textual 8.2 keeps the painted lines of its last thousand widgets.

    Its cache of border styles has the widget's cache in the key: 160 KiB and more for each opened screen.
    """
    cached = getattr(StylesCache.get_inner_outer, "cache_clear", None)
    if cached is not None:
        cached()


class ChangedColumnsCompositor(Compositor):
    """Replaces a screen's compositor. If Textual stops using partial updates, more is sent and nothing breaks."""

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
