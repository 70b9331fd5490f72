"""Feed thread of the dashboard and run screens: reads database and GPUs once a second, posts what changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kgops.errors import KgopsError
from kgops.gpus.history import GpuCurve, GpuHistory
from kgops.gpus.processes import sees_host_pids
from kgops.gpus.readings import NvmlProblem
from kgops.gpus.sampler import GpuSampler
from kgops.settings import Home, make_home
from kgops.supervisor.settle import needs_settling
from kgops.views.alerts import Alert, ended_while_away, live_alerts
from kgops.views.gpus import GpuUsage, GpuUsageReader
from kgops.views.host import HostReader, HostUse
from kgops.views.overview import Overview, overview
from kgops.views.run_detail import RunDetail, read_run_detail
from storage.database import Connection, changed_since, explained, open_reader, open_writer
from storage.errors import DatabaseMissing, StorageError

__all__ = ["DASHBOARD", "HISTORY", "Feed", "FeedState", "OneRun", "Wanted"]

_SETTLE_EVERY_S = 3.0
_DRIVER_PATIENCE_S = 0.05  # wait for the first GPU reading: most drivers answer within it


@dataclass(frozen=True, slots=True)
class OneRun:
    number: int


DASHBOARD = "dashboard"
HISTORY = "history"
Wanted = str | OneRun | None  # what the visible screen needs; None: nothing


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
    ) -> None:
        self._home, self._post, self._fail, self._every_s = home, post, fail, every_s
        self._wake = threading.Event()
        self._stopping = False
        self._paused = False
        self._wanted: Wanted = DASHBOARD
        self._thread = threading.Thread(target=self._run_loop, name="kgops-feed", daemon=True)
        self._conn: Connection | None = None
        self._sampler: GpuSampler | None = None
        self._seen_version: int | None = None
        self._latest = FeedState()
        self._posted: FeedState | None = None
        self._usages = GpuUsageReader(home)
        self._usage: tuple[int, tuple[GpuUsage, ...]] = (0, ())  # of the reading of that number
        self._history = GpuHistory()
        self._host = HostReader(home)
        self._away: str | None = None
        self._own_pids = sees_host_pids()
        self._settle_at = 0.0

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

    def want(self, wanted: Wanted) -> None:
        if wanted != self._wanted:
            self._wanted, self._seen_version, self._posted = wanted, None, None
            self._wake.set()

    def read_now(self) -> None:
        """Reads at once: an action of this process changed a run."""
        self._seen_version = self._posted = None
        self._wake.set()

    # --- the thread ---

    def _run_loop(self) -> None:
        try:
            while not self._stopping:
                self._wake.clear()
                wanted = self._wanted
                # While paused, a newly opened screen and changes made from here are still shown once.
                idle = wanted is None or (self._paused and self._posted is not None)
                if idle or wanted != DASHBOARD:
                    self._stop_sampler()
                if not idle:
                    self._read_and_post(wanted)
                self._wake.wait(None if idle else self._every_s)
        except BaseException as error:  # a bug: show it, do not end silently
            self._fail(error)
        finally:
            self._stop_sampler()
            self._close()

    def _read_and_post(self, wanted: Wanted) -> None:
        try:
            with explained(self._home.database):
                state = self._read_state(wanted)
        except DatabaseMissing:
            state = self._dashboard(None) if wanted == DASHBOARD else FeedState(wanted)
        except (KgopsError, StorageError) as error:
            self._close()
            state = FeedState(
                wanted, error_text=f"{error.message} — {error.hint}" if error.hint else error.message
            )
        if state != self._posted and wanted == self._wanted:
            self._posted = state
            self._post(state)

    def _read_state(self, wanted: Wanted) -> FeedState:
        if self._conn is None:
            self._conn = open_reader(self._home.database, busy_timeout_s=1.0)
            self._seen_version = None
            self._away = self._away or ended_while_away(self._conn)
        self._settle(self._conn)
        changed, version = changed_since(self._conn, self._seen_version)
        self._seen_version = version
        if wanted == HISTORY:
            self._latest = FeedState(wanted, version=version)
            return self._latest
        if isinstance(wanted, OneRun):
            detail = self._latest.detail
            if changed or detail is None or detail.run.id != wanted.number:
                detail = read_run_detail(self._home, self._conn, wanted.number)
            self._latest = FeedState(wanted, detail=detail)
            return self._latest
        known_overview = self._latest.overview
        if changed or known_overview is None:
            known_overview = overview(self._conn, known_overview)
        self._latest = self._dashboard(known_overview)
        return self._latest

    def _settle(self, conn: Connection) -> None:
        """Starts waiting runs, as every command does: a dashboard may stay open for days."""
        if time.monotonic() < self._settle_at:
            return
        self._settle_at = time.monotonic() + _SETTLE_EVERY_S
        if not needs_settling(self._home, conn):
            return
        from kgops.supervisor.settle import settle

        make_home(self._home)
        writer = open_writer(self._home.database, busy_timeout_s=2.0)
        try:
            settle(self._home, writer)
        finally:
            writer.close()

    def _dashboard(self, known_overview: Overview | None) -> FeedState:
        gpus, problem = self._gpus()
        curves, host = self._history.curves, self._host.read()
        return FeedState(
            DASHBOARD,
            known_overview,
            gpus,
            problem,
            curves,
            host,
            self._alerts(known_overview, gpus or ()),
            self._away,
            self._own_pids,
        )

    def _alerts(self, known_overview: Overview | None, gpus: tuple[GpuUsage, ...]) -> tuple[Alert, ...]:
        running = [one.run for one in known_overview.running] if known_overview is not None else []
        live = live_alerts(self._home, running, gpus, time.time())
        if known_overview is None:
            return live
        seen = known_overview.acknowledged
        return (*(one for one in live if one.name not in seen), *known_overview.alerts)

    def _gpus(self) -> tuple[tuple[GpuUsage, ...] | None, NvmlProblem | None]:
        if self._sampler is None:
            self._sampler = GpuSampler(self._every_s, for_people=True)
            self._sampler.start()
            self._usage = 0, ()
            snapshot = self._sampler.first(_DRIVER_PATIENCE_S)
        else:
            snapshot = self._sampler.newest()
        if snapshot is None:
            return self._latest.gpus, self._latest.gpu_problem
        if snapshot.problem is not None:
            return (), snapshot.problem
        if self._usage[0] != snapshot.number:
            self._usage = snapshot.number, self._usages.read(snapshot.gpus, self._conn)
            self._history.add(snapshot.taken_at, snapshot.gpus)
        return self._usage[1], None

    def _stop_sampler(self) -> None:
        if self._sampler is not None:
            self._sampler.stop(timeout_s=0.0)
            self._sampler = None

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
