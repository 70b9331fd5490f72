"""A browser's end of the screens: they leave when whoever serves them has gone."""

from __future__ import annotations

from textual.drivers.web_driver import WebDriver

__all__ = ["LeavingDriver"]


class LeavingDriver(WebDriver):
    """WebDriver stops listening at the end of its input and would go on drawing for nobody."""

    def run_input_thread(self) -> None:
        super().run_input_thread()
        if not self.exit_event.is_set():
            self._app.call_later(self._app.exit)
