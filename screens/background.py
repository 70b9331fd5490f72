"""Beginning what takes a while, so that keys wait for nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from textual.css.query import NoMatches
from textual.dom import DOMNode

__all__ = ["begin"]


def begin(owner: DOMNode, work: Callable[[], Awaitable[None]], *, instead: str | None = None) -> None:
    """It ends with its owner. `instead`: also with the next that is begun under this name.

    As a function, not as its coroutine: that one would never be awaited where its owner leaves at once.
    """

    async def until_it_leaves() -> None:
        try:
            await work()
        except NoMatches:
            if owner.display:
                raise  # else it is leaving, and lost its parts before it could be told to end

    begun: Callable[[], Awaitable[None]] = until_it_leaves
    owner.run_worker(begun, exclusive=instead is not None, group=instead or "default")
