"""Driver of a terminal, and work in the background."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
import time
from codecs import getincrementaldecoder
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from textual._xterm_parser import XTermParser
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.drivers.linux_driver import LinuxDriver

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


_LISTENS_S = 1.0  # polls this long after a key: an incomplete escape sequence ends by timeout
_TICK_S = 0.05


class BlockingDriver(LinuxDriver):
    """Exits the app when its terminal has gone, where LinuxDriver would spin."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wake_read, self._wake_write = os.pipe()

    def start_application_mode(self) -> None:
        """Python handles a signal when the main thread next wakes up, and nothing polls here. A signal handler
        of the event loop wakes it at every signal."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, self._sigcont_application)
        super().start_application_mode()  # type: ignore[no-untyped-call]  # untyped in Textual

    def run_input_thread(self) -> None:
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        last_key_at = time.monotonic()
        self._drain_wakes()
        while not self.exit_event.is_set():
            listening = time.monotonic() - last_key_at < _LISTENS_S
            ready, _, _ = select.select(
                [self.fileno, self._wake_read], [], [], _TICK_S if listening else None
            )
            if self._wake_read in ready:
                return
            if self.fileno in ready:
                last_key_at = time.monotonic()
                try:
                    raw = os.read(self.fileno, 4096)
                except OSError:  # EIO: the terminal has gone
                    raw = b""
                if not raw:
                    self._app.call_later(self._app.exit)
                    return
                for message in parser.feed(decode(raw)):
                    self.process_message(message)
            for message in parser.tick():
                self.process_message(message)

    def disable_input(self) -> None:
        os.write(self._wake_write, b".")  # wake the thread, which waits for a key
        super().disable_input()

    def _drain_wakes(self) -> None:
        """Discards wake-ups from before the app was suspended."""
        while select.select([self._wake_read], [], [], 0)[0]:
            os.read(self._wake_read, 4096)
