"""Takes over a run: only the holder of its supervisor lock may supervise it.

The lock is a file in the run's folder, where the worker can write too. If the file was replaced, the process list
decides whether the run's supervisor is still alive.
"""

from __future__ import annotations

import signal

from kgops.errors import Unavailable
from kgops.jobs.files import NotAFile, set_aside
from kgops.settings import Home
from kgops.supervisor import locks, processes
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.processes import Identity
from kgops.supervisor.run_folder import RunFolder, must_be_own


def take_over(home: Home, number: int, folder: RunFolder) -> int | None:
    """The supervisor lock of run `number`, or None if another process holds it. Moves aside what is not a file."""
    must_be_own(number, folder)
    try:
        return locks.take(folder.supervisor_lock)
    except NotAFile as error:
        must_be_orphaned(home, number, folder, f"{folder.supervisor_lock.name}: {error.strerror}")
        set_aside(folder.supervisor_lock)
        return locks.take(folder.supervisor_lock)


def must_be_orphaned(home: Home, number: int, folder: RunFolder, why: str) -> None:
    """Raises Unavailable if the run's supervisor is alive although its lock is free."""
    last = folder.last_attempt()
    gate = Tree(folder, last).gate() if last else None
    alive = [who for who in processes.supervisors(home.path, number) if who != gate]
    if alive:
        raise Unavailable(
            f"{why}; its supervisor (PID {alive[0].pid}) still runs, without a lock",
            f"the run continues; `kill {alive[0].pid}` hands it to another supervisor",
        )


def wake_supervisor(folder: RunFolder) -> Identity | None:
    """Continues a supervisor stopped by SIGSTOP; returns it, or None if none was stopped."""
    for who in processes.holders(folder.supervisor_lock):
        if processes.is_stopped(who.pid) and processes.send(who, signal.SIGCONT):
            return who
    return None
