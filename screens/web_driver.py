"""Driver of a browser, imported for one alone."""

from __future__ import annotations

from textual.drivers.web_driver import WebDriver
from textual.message import Message


class BrowserClosed(Message):
    """WebDriver stops reading at the end of its input but goes on drawing."""


class ExitingWebDriver(WebDriver):
    def run_input_thread(self) -> None:
        super().run_input_thread()
        if not self.exit_event.is_set():
            self.send_message(BrowserClosed())
