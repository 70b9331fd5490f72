"""Feed thread of the dashboard and run screens: reads database and GPUs once a second, posts what changed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kgops.settings import Home
from screens.feed_state import DASHBOARD, BesideList, FeedState, Wanted

if TYPE_CHECKING:
    from screens.feed_reader import FeedReader


class Feed:
    """Reads nothing while paused or while no screen wants it. Calls `post` and `fail` from its thread."""

    def __init__(
        self,
        home: Home,
        post: Callable[[FeedState], None],
        fail: Callable[[BaseException], None],
        *,
        every_s: float = 1.0,
        notifies: bool = False,
    ) -> None:
        """`notifies`: alerts of the record are read for every screen."""
        self._home, self._post, self._fail, self._every_s = home, post, fail, every_s
        self._notifies = notifies
        self._wake = threading.Event()
        self._stopping = False
        self._paused = False
        self._wanted: Wanted = DASHBOARD
        self._wanted_by: object = None
        self._thread = threading.Thread(target=self._run_loop, name="kgops-feed", daemon=True)
        self._reader: FeedReader | None = None
        self._afresh = True
        self._posted: FeedState | None = None
        self._beside: BesideList | None = None
        self._posted_beside: FeedState | None = None

    # --- called by screens ---

    def start(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Does not wait: a driver may take seconds, and the thread is a daemon."""
        self._stopping = True
        self._wake.set()

    @property
    def paused(self) -> bool:
        return self._paused

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._wake.set()

    def want(self, by: object, wanted: Wanted, beside: BesideList | None = None) -> None:
        """`by`: the screen. A new one has seen nothing yet, even if the one before wanted the same."""
        if wanted != self._wanted or by is not self._wanted_by:
            self._wanted, self._wanted_by, self._afresh, self._posted = wanted, by, True, None
            self._wake.set()
        if beside != self._beside:
            self._beside, self._posted_beside = beside, None
            self._wake.set()

    def read_now(self) -> None:
        """Reads at once: an action of this process changed a run."""
        self._afresh, self._posted = True, None
        self._wake.set()

    # --- the thread ---

    def _run_loop(self) -> None:
        try:
            while not self._stopping:
                self._wake.clear()
                wanted = self._wanted
                # While paused, a newly opened screen and changes made from here are still shown once.
                idle = (wanted is None and not self._notifies) or (self._paused and self._posted is not None)
                if self._reader is not None and (idle or wanted != DASHBOARD):
                    self._reader.stop_sampler()
                if not idle:
                    self._read_and_post(wanted)
                self._read_beside()
                self._wake.wait(None if idle else self._every_s)
        except BaseException as error:  # a bug: show it, do not end silently
            self._fail(error)
        finally:
            if self._reader is not None:
                self._reader.close()

    def _read_and_post(self, wanted: Wanted) -> None:
        if self._reader is None:
            self._reader = _open_reader(self._home, self._every_s, self._notifies)
        afresh, self._afresh = self._afresh, False
        state = self._reader.read(wanted, afresh)
        if state != self._posted and wanted == self._wanted:
            self._posted = state
            self._post(state)

    def _read_beside(self) -> None:
        beside, posted = self._beside, self._posted_beside
        if self._reader is None or beside is None or (self._paused and posted is not None):
            return
        state = self._reader.read_beside(beside)
        if state != posted and beside == self._beside:
            self._posted_beside = state
            self._post(state)


def _open_reader(home: Home, every_s: float, notifies: bool) -> FeedReader:
    """Imported by the thread, behind the first picture: half of kgops is what it reads with."""
    gc.disable()  # as `kgops tui` imports the rest
    from screens.feed_reader import FeedReader

    gc.freeze()
    gc.enable()
    return FeedReader(home, every_s, notifies)
