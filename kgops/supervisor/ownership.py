"""Who may bring a run forward: whoever holds its supervisor's lock.

The lock is a file in the run's folder, and the worker can write there too. Where it was replaced, the kernel's list of
processes has to say whether the run's supervisor is still at work.
"""

from __future__ import annotations

import signal

from kgops.errors import Unavailable
from kgops.jobs.files import NotAFile, set_aside
from kgops.settings import Home
from kgops.supervisor import locks, processes
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.processes import Identity
from kgops.supervisor.run_folder import RunFolder

__all__ = ["must_be_orphaned", "take_over", "wake_supervisor"]


def take_over(home: Home, number: int, folder: RunFolder) -> int | None:
    """The supervisor's lock of run `number`, or None where somebody else holds it. What is no file is moved aside."""
    try:
        return locks.take(folder.supervisor_lock)
    except NotAFile as error:
        must_be_orphaned(home, number, folder, f"{folder.supervisor_lock.name}: {error.strerror}")
        set_aside(folder.supervisor_lock)
        return locks.take(folder.supervisor_lock)


def must_be_orphaned(home: Home, number: int, folder: RunFolder, why: str) -> None:
    """Raises Unavailable where the supervisor of an unfinished run lives although its lock looks free."""
    last = folder.last_attempt()
    gate = Tree(folder, last).gate() if last else None
    alive = [who for who in processes.supervisors(home.path, number) if who != gate]
    if alive:
        raise Unavailable(
            f"{why}; its supervisor (PID {alive[0].pid}) still runs, without a lock",
            f"the run continues; `kill {alive[0].pid}` hands it to another supervisor",
        )


def wake_supervisor(folder: RunFolder) -> Identity | None:
    """Continues a supervisor that somebody has stopped (SIGSTOP): it, or None where none was."""
    for who in processes.holders(folder.supervisor_lock):
        if processes.is_stopped(who.pid) and processes.send(who, signal.SIGCONT):
            return who
    return None
