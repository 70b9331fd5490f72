"""Retries a supervisor's database writes until they succeed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kgops.supervisor.attempt_end import new_intake
from kgops.supervisor.intake import Intake
from kgops.supervisor.plan_file import Plan
from kgops.supervisor.run_folder import RunFolder
from storage.database import Connection, must_be_current, open_writer
from storage.errors import DatabaseBusy, DatabaseDamaged, DatabaseFull, DatabaseNewer, StorageError

T = TypeVar("T")


class Record:
    """A database connection that reopens after errors, and the intake of one run.

    No database error but DatabaseNewer ends a supervisor: the worker does not wait, and its reports are on disk.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._conn: Connection | None = None
        self._intake: Intake | None = None
        self._last_message = ""
        self.was_opened = False

    @property
    def conn(self) -> Connection:
        """Raises StorageError if the database cannot be opened."""
        if self._conn is None:
            conn = open_writer(self._database, busy_timeout_s=5.0)
            if self._intake is not None:
                self._intake.use(conn)
            self._conn = conn
            self.was_opened = True
        return self._conn

    @property
    def intake(self) -> Intake:
        assert self._intake is not None  # fill_from comes first
        return self._intake

    def fill_from(self, folder: RunFolder, plan: Plan) -> None:
        self._intake = self.retry_until_written(lambda conn: new_intake(conn, folder, plan, reads_log=True))

    def retry_until_written(self, write: Callable[[Connection], T]) -> T:
        """Repeats `write` until it succeeds: the database may be busy, full, moved or out of reach. Raises
        DatabaseNewer. Ends the process if the database is damaged, which no retry repairs: what it would write is in
        the run's folder."""
        while True:
            try:
                must_be_current(self.conn)
                return write(self.conn)
            except StorageError as error:
                self.note_failure(error)
                if isinstance(error, DatabaseDamaged):
                    log("the supervisor leaves; the first command on a repaired database goes on")
                    sys.exit(1)
                if _home_is_gone():
                    log("the home was removed: the supervisor exits")
                    sys.exit(1)
                time.sleep(1.0)

    def note_failure(self, error: StorageError) -> None:
        """Reconnects after errors other than a busy database or a full disk: SQLite may keep a connection read-only
        after the home was moved or a file beside the database could not be created. Raises DatabaseNewer: no retry
        helps an outdated supervisor."""
        if isinstance(error, DatabaseNewer):
            raise error
        if error.message != self._last_message:
            self._last_message = error.message
            log(f"will try again: {error.message}")
        if not isinstance(error, (DatabaseBusy, DatabaseFull)) and self._conn is not None:
            self._conn.close()
            self._conn = None


def _home_is_gone() -> bool:
    """Whether the home, the working folder, was removed (not moved)."""
    return Path().stat().st_nlink == 0


def log(text: str, to: int = 2) -> None:
    """Writes a line to a supervisor's log, by default to that of this process."""
    try:
        os.write(to, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n".encode("utf-8", "replace"))
    except OSError:
        pass  # its disk may be full
