"""Background work of screens and widgets, so that keys never wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from textual.css.query import NoMatches
from textual.dom import DOMNode

__all__ = ["begin"]


def begin(owner: DOMNode, work: Callable[[], Awaitable[None]], *, instead: str | None = None) -> None:
    """Runs `work` until its owner closes, or until other work begins with the same `instead`.

    Takes a function, not a coroutine: a coroutine would never be awaited if the owner closed at once.
    """

    async def until_it_leaves() -> None:
        try:
            await work()
        except NoMatches:
            if owner.display:
                raise  # else the owner is closing and has lost its widgets already

    begun: Callable[[], Awaitable[None]] = until_it_leaves
    owner.run_worker(begun, exclusive=instead is not None, group=instead or "default")
