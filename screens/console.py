"""The application as its screens know it. `screens.app` is the whole, and opens them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from textual.app import App

if TYPE_CHECKING:
    from kgops.cli.session import Session
    from kgops.present.drafts import Draft
    from kgops.settings import Home
    from screens.feed import Feed
    from screens.symbols import Tones
    from storage.runs import Run

T = TypeVar("T")


class Console(App[None], inherit_bindings=False):
    home: Home
    feed: Feed
    last_filter = ""  # of the history

    @property
    def tones(self) -> tuple[Tones, Tones]:
        """Styles of the theme by tone: plain, and under the cursor."""
        raise NotImplementedError

    def say(self, text: str, tone: str = "strong") -> None:
        """Shows a message on the active screen."""
        raise NotImplementedError

    def action_open(self) -> None:
        """Opens the run that the active screen is about."""
        raise NotImplementedError

    def open_run(self, run: Run) -> None:
        raise NotImplementedError

    def open_gpu(self, index: int) -> None:
        raise NotImplementedError

    def open_new_run(
        self, gpu: str | None = None, where: str | None = None, profile: str | None = None
    ) -> None:
        """Planned for that GPU, which need not be in this machine, or for the host `where`, with that profile."""
        raise NotImplementedError

    def open_draft(self, draft: Draft, remark: str = "") -> None:
        """New run, with these values in its fields. `remark`: what a person should know of them."""
        raise NotImplementedError

    async def open_history(self, text: str) -> None:
        """With this filter."""
        raise NotImplementedError

    def gpus(self) -> list[tuple[int, str]]:
        """Numbers and names of those that the dashboard shows; none where only hosts are open."""
        raise NotImplementedError

    async def carry_out(self, change: Callable[[Session], T]) -> T | None:
        """Runs `change` in a thread, one at a time. On an error, shows it and returns None."""
        raise NotImplementedError

    def raise_in_app(self, error: BaseException) -> None:
        """Called from another thread: re-raises in the app, so that Textual shows the traceback."""

        def surface() -> None:
            raise error

        self.call_later(surface)
