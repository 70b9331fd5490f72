"""The one thread that looks: once a second it takes a frozen moment of everything and posts it if it is new."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from kgops.errors import KgopsError
from kgops.gpus.readings import NvmlProblem, Snapshot
from kgops.gpus.sampler import GpuSampler
from kgops.settings import Home, make_home
from kgops.supervisor.unsettled import needs_settling
from kgops.views.overview import GpuUsage, Overview, on_gpus, overview
from kgops.views.run_detail import RunDetail, read_run_detail
from storage.database import Connection, changed_since, explained, open_reader, open_writer
from storage.errors import DatabaseMissing, StorageError

__all__ = ["DASHBOARD", "HISTORY", "Feed", "Moment", "OneRun", "Wanted"]

_SETTLE_EVERY_S = 3.0
_DRIVER_PATIENCE_S = (
    0.05  # for the first reading: most drivers answer in that time, and nobody waits for the others
)


@dataclass(frozen=True, slots=True)
class OneRun:
    number: int


DASHBOARD = "dashboard"
HISTORY = "history"
Wanted = str | OneRun | None  # what the visible screen shows; None: nothing of this


@dataclass(frozen=True, slots=True)
class Moment:
    """What is there to show; two that are equal look the same."""

    of: Wanted = None
    overview: Overview | None = None  # None before the first run, or while nobody wants it
    gpus: tuple[GpuUsage, ...] | None = None  # None: not read yet
    no_gpus: NvmlProblem | None = None
    detail: RunDetail | None = None
    trouble: str | None = None
    version: int | None = None  # of the database, for a screen that reads it by itself


class Feed:
    """Reads nothing while it is paused or nothing is wanted. `post` and `fail` are called from its own thread."""

    def __init__(
        self,
        home: Home,
        post: Callable[[Moment], None],
        fail: Callable[[BaseException], None],
        *,
        every_s: float = 1.0,
    ) -> None:
        self._home, self._post, self._fail, self._every_s = home, post, fail, every_s
        self._wake = threading.Event()
        self._stopping = False
        self._paused = False
        self._wanted: Wanted = DASHBOARD
        self._thread = threading.Thread(target=self._go, name="kgops-feed", daemon=True)
        self._conn: Connection | None = None
        self._sampler: GpuSampler | None = None
        self._seen: int | None = None
        self._now = Moment()
        self._posted: Moment | None = None
        self._whose: tuple[object, tuple[GpuUsage, ...]] | None = None
        self._settle_at = 0.0

    # --- called by screens ---

    def start(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Asks and does not wait: a driver may take seconds, and the thread is a daemon."""
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
            self._wanted, self._seen, self._posted = wanted, None, None
            self._wake.set()

    def look_now(self) -> None:
        """Something was changed from here: nobody should wait a second to see it."""
        self._seen = self._posted = None
        self._wake.set()

    # --- the thread ---

    def _go(self) -> None:
        try:
            while not self._stopping:
                self._wake.clear()
                wanted = self._wanted
                # A screen that is opened while the feed rests is shown once, and a change from here too.
                idle = wanted is None or (self._paused and self._posted is not None)
                if idle or wanted != DASHBOARD:
                    self._rest_gpus()
                if not idle:
                    self._look(wanted)
                self._wake.wait(None if idle else self._every_s)
        except BaseException as error:  # a mistake of ours: it must not end in silence
            self._fail(error)
        finally:
            self._rest_gpus()
            self._close()

    def _look(self, wanted: Wanted) -> None:
        try:
            with explained(self._home.database):
                moment = self._moment(wanted)
        except DatabaseMissing:
            moment = Moment(DASHBOARD, *self._gpus()) if wanted == DASHBOARD else Moment(wanted)
        except (KgopsError, StorageError) as error:
            self._close()
            moment = Moment(
                wanted, trouble=f"{error.message} — {error.hint}" if error.hint else error.message
            )
        if moment != self._posted and wanted == self._wanted:
            self._posted = moment
            self._post(moment)

    def _moment(self, wanted: Wanted) -> Moment:
        if self._conn is None:
            self._conn = open_reader(self._home.database, busy_timeout_s=1.0)
            self._seen = None
        self._settle(self._conn)
        changed, version = changed_since(self._conn, self._seen)
        self._seen = version
        if wanted == HISTORY:
            self._now = Moment(wanted, version=version)
            return self._now
        if isinstance(wanted, OneRun):
            known = self._now.detail
            if changed or known is None or known.run.id != wanted.number:
                known = read_run_detail(self._home, self._conn, wanted.number)
            self._now = Moment(wanted, detail=known)
            return self._now
        seen = self._now.overview
        if changed or seen is None:
            seen = overview(self._home, self._conn, seen)
        _, gpus, problem = self._gpus(seen)
        self._now = Moment(wanted, seen, gpus, problem)
        return self._now

    def _settle(self, conn: Connection) -> None:
        """A dashboard that stays open for days gives waiting runs their turn, as every command does."""
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

    def _gpus(
        self, seen: Overview | None = None
    ) -> tuple[Overview | None, tuple[GpuUsage, ...] | None, NvmlProblem | None]:
        if self._sampler is None:
            self._sampler = GpuSampler(self._every_s)
            self._sampler.start()
            snapshot = self._sampler.first(_DRIVER_PATIENCE_S)
        else:
            snapshot = self._sampler.newest()
        if snapshot is None:
            return seen, self._now.gpus, self._now.no_gpus
        if snapshot.problem is not None:
            return seen, (), snapshot.problem
        return seen, self._owned(snapshot, seen), None

    def _owned(self, snapshot: Snapshot, seen: Overview | None) -> tuple[GpuUsage, ...]:
        """Whose processes they are is looked up again only when processes or runs have changed."""
        going = [one.run for one in seen.running] if seen is not None else []
        about = (
            tuple(
                (gpu.uuid, _pids(gpu.processes), _pids(*(s.processes for s in gpu.slices)))
                for gpu in snapshot.gpus
            ),
            tuple((run.id, run.gpu) for run in going),
        )
        if self._whose is None or self._whose[0] != about:
            self._whose = (about, on_gpus(self._home, self._conn, snapshot.gpus, going))
        return tuple(
            GpuUsage(gpu, now.runs, now.reserved_mib)
            for gpu, now in zip(snapshot.gpus, self._whose[1], strict=True)
        )

    def _rest_gpus(self) -> None:
        if self._sampler is not None:
            self._sampler.stop(timeout_s=0.0)
            self._sampler = None

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None


def _pids(*listed: object) -> tuple[int, ...]:
    return tuple(process.pid for processes in listed if isinstance(processes, tuple) for process in processes)
