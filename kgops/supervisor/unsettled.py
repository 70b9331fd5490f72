"""A cheap look for commands that only read: is there anything to settle? Most days there is not."""

from __future__ import annotations

from kgops.settings import Home
from kgops.supervisor import locks, pending
from kgops.supervisor.run_folder import RunFolder
from storage import runs
from storage.database import Connection


def needs_settling(home: Home, conn: Connection) -> bool:
    """Something is half made, waits for its turn, or is unfinished without a supervisor."""
    if pending.is_anything(home):
        return True
    return any(
        run.state in runs.WAITING or not _is_supervised(RunFolder(home.runs / run.folder))
        for run in runs.in_states(conn, runs.UNFINISHED)
    )


def _is_supervised(folder: RunFolder) -> bool:
    try:
        return locks.is_held(folder.supervisor_lock)
    except OSError:  # settling says what is wrong with it
        return False
