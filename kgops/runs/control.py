"""What consoles do to runs that somebody else supervises: stop them, wait for them."""

from __future__ import annotations

import os
import time

from kgops.runs import locks
from kgops.runs.conclude import end_without_attempt
from kgops.runs.folder import RunFolder
from kgops.runs.plan_file import read_plan
from kgops.runs.settle import settle
from kgops.runs.stopping import request_stop
from kgops.settings import Home
from storage import runs
from storage.database import Connection
from storage.runs import Run

_LOOK_EVERY_S = 0.1
_SETTLE_EVERY_S = 1.0


def stop_run(home: Home, conn: Connection, run: Run, grace_s: float | None) -> None:
    """Asks; a run that only waits is cancelled here and now. One that has ended is left as it is."""
    if run.ended:
        return
    folder = RunFolder(home.runs / run.folder)
    request_stop(folder, read_plan(folder).grace_s if grace_s is None else grace_s)
    # Whoever holds the lock sees the request. If nobody does, the run waits and nothing of it exists.
    lock = locks.take(folder.supervisor_lock)
    if lock is None:
        return
    try:
        now = runs.get(conn, run.id)
        if now is not None and now.state in runs.WAITING:
            end_without_attempt(conn, folder, run.id, "cancelled", "stopped while it waited")
    finally:
        os.close(lock)


def wait_for_end(home: Home, conn: Connection, number: int) -> Run:
    """Returns the run when it has ended, bringing it there itself if its supervisor is killed meanwhile."""
    next_settle = 0.0
    while True:
        run = runs.get(conn, number)
        if run is None or run.ended:
            if run is None:
                raise LookupError(f"run {number} was deleted")
            return run
        if time.monotonic() >= next_settle:
            settle(home, conn)
            next_settle = time.monotonic() + _SETTLE_EVERY_S
        else:
            time.sleep(_LOOK_EVERY_S)
