"""Feed thread of the dashboard and run screens: reads database and GPUs once a second, posts what changed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kgops.settings import Home

if TYPE_CHECKING:
    from kgops.gpus.history import GpuCurve
    from kgops.gpus.readings import NvmlProblem
    from kgops.views.alerts import Alert
    from kgops.views.chart import ChartRun
    from kgops.views.glance import Glance
    from kgops.views.gpus import GpuUsage
    from kgops.views.host import HostUse
    from kgops.views.overview import Overview
    from kgops.views.run_detail import RunDetail
    from screens.feed_reader import FeedReader

__all__ = ["DASHBOARD", "HISTORY", "BesideList", "Feed", "FeedState", "OneCurve", "OneRun", "Wanted"]


@dataclass(frozen=True, slots=True)
class OneRun:
    number: int


@dataclass(frozen=True, slots=True)
class OneCurve:
    """One metric of several runs."""

    name: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BesideList:
    """A run's number; read besides what a screen with a list wants, and posted as a state of its own."""

    number: int


DASHBOARD = "dashboard"
HISTORY = "history"
Wanted = str | OneRun | OneCurve | BesideList | None  # what the visible screen needs; None: nothing


@dataclass(frozen=True, slots=True)
class FeedState:
    """Immutable state for one screen; equal states look alike."""

    wanted: Wanted = None
    overview: Overview | None = None  # None before the first run, or if not wanted
    gpus: tuple[GpuUsage, ...] | None = None  # None: not read yet
    gpu_problem: NvmlProblem | None = None
    curves: Mapping[int, GpuCurve] = field(default_factory=dict)  # by GPU index
    host: HostUse | None = None
    alerts: tuple[Alert, ...] = ()  # unacknowledged, of the record and of this moment
    away: str | None = None  # what ended since a console was left
    own_pids: bool = True  # whether the driver's PIDs are valid here; not in most containers
    detail: RunDetail | None = None
    chart: tuple[ChartRun, ...] = ()
    glance: Glance | None = None
    error_text: str | None = None
    version: int | None = None  # database version, for screens that read the database themselves


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

    def want(self, wanted: Wanted, beside: BesideList | None = None) -> None:
        if wanted != self._wanted:
            self._wanted, self._afresh, self._posted = wanted, True, None
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
