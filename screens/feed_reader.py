"""What the feed reads of this machine with, of database, GPUs and host. Imported by its thread alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kgops.errors import KgopsError
from kgops.gpus.history import GpuHistory
from kgops.gpus.processes import sees_host_pids
from kgops.gpus.readings import NvmlProblem, Snapshot
from kgops.gpus.sampler import GpuSampler
from kgops.present.gpus import GpuUsage, GpuUsageReader
from kgops.present.host import HostReader
from kgops.present.overview import Overview, ended_while_away, live_alerts, overview, recorded_alerts
from kgops.settings import Home, make_home
from kgops.supervisor.alerts import Alert
from kgops.supervisor.pending import needs_settling
from screens.feed_state import DASHBOARD, HISTORY, QUEUE, BesideList, FeedState, OneCurve, OneRun, Wanted
from storage.database import Connection, changed_since, explained, open_reader, open_writer
from storage.errors import DatabaseMissing, StorageError
from storage.runs import ACTIVE, UNFINISHED, Run, in_states, latest

if TYPE_CHECKING:
    from kgops.gpus.facts import UnusableGpus
    from kgops.present.glance import GlanceReader

_SETTLE_EVERY_S = 3.0
_DRIVER_PATIENCE_S = 0.05  # wait for the first GPU reading: most drivers answer within it


class FeedReader:
    """Keeps the database open, and the GPUs sampled while the dashboard is wanted."""

    def __init__(self, home: Home, every_s: float, notifies: bool) -> None:
        self._home, self._every_s, self._notifies = home, every_s, notifies
        self._watched: tuple[tuple[Run, ...], tuple[Alert, ...]] | None = (
            None  # active runs, alerts of the record
        )
        self._conn: Connection | None = None
        self._sampler: GpuSampler | None = None
        self._seen_version: int | None = None
        self._latest = FeedState()
        self._usages = GpuUsageReader(home)
        self._usage: tuple[int, tuple[GpuUsage, ...]] = (0, ())  # of the reading of that number
        self._history = GpuHistory()
        self._host = HostReader(home)
        self._away: str | None = None
        self._unusable: UnusableGpus | None = None  # as of the dashboard's first reading
        self._own_pids = sees_host_pids()
        self._settle_at = 0.0
        self._glances: GlanceReader | None = None

    def read(self, wanted: Wanted, afresh: bool) -> FeedState:
        """`afresh`: the database too, even if nobody wrote to it since."""
        return self._explained(wanted, lambda: self._read(wanted, afresh))

    def read_beside(self, wanted: BesideList) -> FeedState:
        """After `read`, which opens the database."""

        def glance() -> FeedState:
            if self._conn is None:
                return FeedState(wanted)
            if self._glances is None:
                from kgops.present.glance import GlanceReader

                self._glances = GlanceReader(self._home)
            return FeedState(wanted, glance=self._glances.read(self._conn, wanted.number))

        return self._explained(wanted, glance)

    def _explained(self, wanted: Wanted, read: Callable[[], FeedState]) -> FeedState:
        try:
            with explained(self._home.database):
                return read()
        except DatabaseMissing:
            return self._dashboard(None) if wanted == DASHBOARD else FeedState(wanted)
        except (KgopsError, StorageError) as error:
            self._close_database()
            return FeedState(
                wanted, error_text=f"{error.message} — {error.hint}" if error.hint else error.message
            )

    def stop_sampler(self) -> None:
        if self._sampler is not None:
            self._sampler.stop(timeout_s=0.0)
            self._sampler = None

    def close(self) -> None:
        self.stop_sampler()
        self._close_database()

    def _close_database(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _read(self, wanted: Wanted, afresh: bool) -> FeedState:
        if self._conn is None:
            self._conn = open_reader(self._home.database, busy_timeout_s=1.0)
            self._seen_version = self._glances = None
            self._away = self._away or ended_while_away(self._conn)
        self._settle(self._conn)
        changed, version = changed_since(self._conn, None if afresh else self._seen_version)
        self._seen_version = version
        if wanted != DASHBOARD and self._notifies and (changed or self._watched is None):
            self._watched = tuple(in_states(self._conn, ACTIVE)), recorded_alerts(self._conn)
        if wanted == HISTORY or wanted is None:
            self._latest = FeedState(wanted, version=version, alerts=self._watched_alerts())
            return self._latest
        if wanted == QUEUE:
            if changed or self._latest.wanted != wanted:
                self._latest = FeedState(wanted, queue=_queue(self._conn), alerts=self._watched_alerts())
            return self._latest
        if isinstance(wanted, OneRun):
            detail = self._latest.detail
            if changed or detail is None or detail.run.id != wanted.number:
                from kgops.present.run_detail import read_run_detail

                detail = read_run_detail(self._home, self._conn, wanted.number)
            self._latest = FeedState(wanted, detail=detail, alerts=self._watched_alerts())
            return self._latest
        if isinstance(wanted, OneCurve):
            if changed or self._latest.wanted != wanted:
                from kgops.present.chart import read_chart

                chart = read_chart(self._home, self._conn, wanted.name, wanted.numbers)
                self._latest = FeedState(wanted, chart=chart, alerts=self._watched_alerts())
            return self._latest
        self._watched = None
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
            self._unusable,
            curves,
            host,
            self._alerts(known_overview, gpus or ()),
            self._away,
            self._own_pids,
        )

    def _alerts(self, known_overview: Overview | None, gpus: tuple[GpuUsage, ...]) -> tuple[Alert, ...]:
        running = [one.run for one in known_overview.running] if known_overview is not None else []
        live = live_alerts(self._home, running, gpus, time.time(), self._unusable)
        if known_overview is None:
            return live
        seen = known_overview.acknowledged
        return (*(one for one in live if one.name not in seen), *known_overview.alerts)

    def _watched_alerts(self) -> tuple[Alert, ...]:
        """Of screens that do not show them, for notifications; GPUs are read for the dashboard alone."""
        if self._watched is None:
            return ()
        active, recorded = self._watched
        return (*live_alerts(self._home, active, (), time.time()), *recorded)

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
            self._unusable = None
            return (), snapshot.problem
        if self._usage[0] == 0:
            self._unusable = _unusable(snapshot)
        if self._usage[0] != snapshot.number:
            self._usage = snapshot.number, self._usages.read(snapshot.gpus, self._conn)
            self._history.add(snapshot.taken_at, snapshot.gpus)
        return self._usage[1], None


def _unusable(snapshot: Snapshot) -> UnusableGpus | None:
    if not snapshot.gpus:
        return None
    from kgops.gpus.facts import unusable_gpus  # what it needs is large, and most laptops have no GPU

    return unusable_gpus(snapshot)


def _queue(conn: Connection) -> tuple[tuple[int, str], ...]:
    """What a plan depends on. The newest run may have begun and ended between two looks."""
    newest = latest(conn)
    listed = (*in_states(conn, UNFINISHED), *([newest] if newest is not None else ()))
    return tuple((run.id, run.state) for run in listed)
