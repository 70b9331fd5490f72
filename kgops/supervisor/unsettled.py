"""Whether anything is left to settle: asked often, by screens and feeds that should not import `settle` for it."""

from __future__ import annotations

from kgops.settings import Home
from kgops.supervisor import locks, pending
from kgops.supervisor.run_folder import RunFolder
from storage import runs
from storage.database import Connection


def needs_settling(home: Home, conn: Connection) -> bool:
    """Whether a run is half created, queued, or unfinished without a supervisor."""
    if pending.is_anything(home):
        return True
    return any(
        run.state in runs.WAITING or not _is_supervised(RunFolder(home.runs / run.folder))
        for run in runs.in_states(conn, runs.UNFINISHED)
    )


def may_be_outdated(home: Home, conn: Connection) -> bool:
    """Whether a run is half created, or called starting or running without a supervisor that would know its end."""
    active = runs.in_states(conn, runs.ACTIVE)
    return pending.is_anything(home) or not all(
        _is_supervised(RunFolder(home.runs / run.folder)) for run in active
    )


def _is_supervised(folder: RunFolder) -> bool:
    try:
        return locks.is_held(folder.supervisor_lock)
    except OSError:  # the recovery reports it
        return False
