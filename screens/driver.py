"""The terminal, waited for without waking up: Textual's own driver looks for a key ten times a second."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from codecs import getincrementaldecoder
from typing import Any

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

__all__ = ["QuietDriver"]

_LISTENS_S = 1.0  # after a key: half an escape sequence is decided by a timeout
_TICK_S = 0.05


class QuietDriver(LinuxDriver):
    """Leaves the application when its terminal has gone, where LinuxDriver would spin."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ears, self._nudge = os.pipe()

    def start_application_mode(self) -> None:
        """A signal may come to any thread, and Python handles it when the main one next wakes up. Nothing here wakes it
        for nothing: a handler of the loop's makes every signal do so."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, self._sigcont_application)
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual's has no types

    def run_input_thread(self) -> None:
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        heard = time.monotonic()
        self._forget_nudges()
        while not self.exit_event.is_set():
            listening = time.monotonic() - heard < _LISTENS_S
            ready, _, _ = select.select([self.fileno, self._ears], [], [], _TICK_S if listening else None)
            if self._ears in ready:
                return
            if self.fileno in ready:
                heard = time.monotonic()
                try:
                    raw = os.read(self.fileno, 4096)
                except OSError:  # EIO: nobody holds the other end any more
                    raw = b""
                if not raw:
                    self._app.call_later(self._app.exit)
                    return
                for message in parser.feed(decode(raw)):
                    self.process_message(message)
            for message in parser.tick():
                self.process_message(message)

    def disable_input(self) -> None:
        os.write(self._nudge, b".")  # the thread waits for a key, and would for good
        super().disable_input()

    def _forget_nudges(self) -> None:
        """Of a time before this one: the screens were left for the shell, and are back."""
        while select.select([self._ears], [], [], 0)[0]:
            os.read(self._ears, 4096)
