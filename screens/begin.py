"""Beginning what takes a while, so that keys wait for nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from textual.dom import DOMNode

__all__ = ["begin"]


def begin(owner: DOMNode, work: Callable[[], Awaitable[None]], *, instead: str | None = None) -> None:
    """It ends with its owner. `instead`: also with the next that is begun under this name.

    As a function, not as its coroutine: that one would never be awaited where its owner leaves at once.
    """
    owner.run_worker(work, exclusive=instead is not None, group=instead or "default")
