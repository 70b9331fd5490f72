"""What a supervisor writes to the database: again and again until it is written, whatever happens to the disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kgops.runs.conclude import new_intake
from kgops.runs.folder import RunFolder
from kgops.runs.plan_file import Plan
from storage.database import Connection, open_writer
from storage.errors import DatabaseBusy, DatabaseFull, DatabaseReadOnly, StorageError

PASSING = (DatabaseBusy, DatabaseFull, DatabaseReadOnly)  # troubles that may be gone in a second

T = TypeVar("T")


def insistently(write: Callable[[], T]) -> T:
    """A database that is busy or full only delays us: the record is on disk, the worker waits for nobody."""
    while True:
        try:
            return write()
        except PASSING as error:
            say(f"will try again: {error}")
            time.sleep(1.0)


class Record:
    """One run's part of the database, and the intake that fills it."""

    def __init__(self, conn: Connection, database: Path, folder: RunFolder, plan: Plan) -> None:
        self.conn = conn
        self._database = database
        self.intake = new_intake(conn, folder, plan, reads_log=True)

    def insist(self, write: Callable[[Connection], T]) -> T:
        """As `insistently`, also through a home that is moved meanwhile."""
        while True:
            try:
                return write(self.conn)
            except PASSING as error:
                self.has_failed(error)
                time.sleep(1.0)

    def has_failed(self, error: StorageError) -> None:
        """SQLite refuses to write a database whose path does not lead to it any more; ours is found from the home."""
        say(f"will try again: {error}")
        if not isinstance(error, DatabaseReadOnly):
            return
        try:
            conn = open_writer(self._database, busy_timeout_s=5.0)
        except (StorageError, OSError) as trouble:
            say(f"cannot open the database again: {trouble}")
            return
        self.conn.close()
        self.conn = conn
        self.intake.use(conn)


def say(text: str) -> None:
    """Into the supervisor's own log."""
    try:
        os.write(2, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n".encode("utf-8", "replace"))
    except OSError:
        pass  # the disk it writes to may be the one that is full: no reason to die
