"""Work in the background of a screen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from textual.css.query import NoMatches
from textual.dom import DOMNode

T = TypeVar("T")


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


async def in_own_thread(work: Callable[[], T]) -> T:
    """As `asyncio.to_thread`, but nobody waits for the thread on leaving, and it takes none from a pool: for what
    waits for a host."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def deliver(give: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            give(value)

    def run() -> None:
        try:
            outcome = done.set_result, work()
        except BaseException as error:
            outcome = done.set_exception, error  # type: ignore[assignment]  # raised where it is waited for
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(deliver, *outcome)

    threading.Thread(target=run, name="kgops-host", daemon=True).start()
    return await done
