"""Stops a run, or waits for its end, from a process that does not supervise it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from kgops.errors import KgopsError, NoSuchRun, Unavailable
from kgops.settings import Home
from kgops.supervisor import processes, queue, run_folder
from kgops.supervisor.attempt_end import end_without_attempt
from kgops.supervisor.end_hook import run_end_hook
from kgops.supervisor.linked_folder import is_own, must_be_own
from kgops.supervisor.ownership import take_over, wake_supervisor
from kgops.supervisor.plan_file import read_plan, recorded_plan
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.run_folder import RunFolder, number_of, read_stop, request_stop
from kgops.supervisor.settle import settle
from storage import runs
from storage.database import Connection
from storage.errors import DatabaseBusy, DatabaseDamaged, DatabaseFull, DatabaseReadOnly, StorageError
from storage.runs import Run

_POLL_EVERY_S = 0.1
_GRACE_S = 10.0  # where the plan cannot be read
_SETTLE_EVERY_S = 1.0
_RECORDED_WITHIN_S = 10.0  # an end, unless the database cannot be written
_MESSAGE_AFTER_S = 10.0  # beyond a stop's grace, until the user reads what it waits for


def stop_run(home: Home, conn: Connection, run: Run, grace_s: float | None) -> None:
    """Requests a stop; cancels a queued run at once. Does nothing to an ended run.

    Needs no disk space, and only read access to the database.
    """
    if run.ended:
        return
    folder = RunFolder(home.runs / run.folder)
    grace_s = recorded_plan(conn, folder, run.id).grace_s if grace_s is None else grace_s
    if not folder.path.is_dir() or not is_own(folder):
        _stop_without_folder(home, conn, run, grace_s)
        return
    try:
        request_stop(folder, grace_s)
    except OSError as error:
        raise Unavailable(
            f"cannot ask run {run.id} to stop: {folder.stop}: {error.strerror}",
            "`kgops doctor` checks the home",
        ) from error
    wake_supervisor(folder)
    # The holder of the lock sees the request. If nobody holds it, the run is queued and has no process.
    lock = take_over(home, run.id, folder)
    if lock is None:
        return
    try:
        now = runs.get(conn, run.id)
        if now is not None and now.state in runs.WAITING:
            end_without_attempt(conn, folder, run.id, "cancelled", "stopped while queued")
            _run_hook(home, conn, run.id)
    except (DatabaseFull, DatabaseReadOnly):
        pass  # its folder holds the end; the next command that can write records it
    finally:
        os.close(lock)
    try:
        queue.dispatch(home, conn)  # other runs may have waited for it
    except (StorageError, OSError):
        pass  # the next command retries


class Stopped(NamedTuple):
    """A run as its folder has it; `state` is None while it has no end there."""

    number: int
    state: str | None
    reason: str | None


def stop_by_folder(home: Home, name: str, grace_s: float | None, *, waits: bool) -> Stopped:
    """Stops a run without the database, which is damaged: by number, or the one with the highest number for `last`."""
    folders = {number_of(path.name): path for path in sorted(home.runs.glob("*")) if number_of(path.name)}
    number = max(filter(None, folders), default=0) if name == "last" else int(name) if name.isdecimal() else 0
    if number not in folders:
        raise NoSuchRun(f"there is no run {name:.40} in {home.runs}", "`ls` lists the folders of runs there")
    folder = RunFolder(folders[number])
    must_be_own(number, folder)
    if run_folder.read_ending(folder.outcome) is None:
        request_stop(folder, _grace_in(folder) if grace_s is None else grace_s)
        wake_supervisor(folder)
        if waits:
            _wait_for_processes(home, number, folder)
    ending = run_folder.read_ending(folder.outcome)
    return Stopped(number, ending.state if ending else None, ending.reason if ending else None)


def _grace_in(folder: RunFolder) -> float:
    try:
        return read_plan(folder).grace_s
    except (KgopsError, OSError):
        return _GRACE_S


def _wait_for_processes(home: Home, number: int, folder: RunFolder) -> None:
    """Returns when no process of the run is left; ends them itself if the run has no supervisor."""
    while True:
        lock = take_over(home, number, folder)
        if lock is None:
            time.sleep(_POLL_EVERY_S)
            continue
        try:
            if last := folder.last_attempt():
                folder.attempt(last).mark_asked_to_stop()
                Tree(folder, last).end(grace_s=read_stop(folder) or 0.0)
            return
        finally:
            os.close(lock)


def _stop_without_folder(home: Home, conn: Connection, run: Run, grace_s: float) -> None:
    """Ends a run's processes itself: without a folder no request reaches its supervisor, and no end can be read."""
    first, deadline = True, time.monotonic() + grace_s
    while owners := processes.supervisors(home.path, run.id):  # and their gates
        above = {who.pid for who in owners}
        below = [pid for pid in processes.descendants(above) if pid not in above]
        members = [who for pid in below if (who := processes.identify(pid)) is not None]
        late = not members or time.monotonic() > deadline
        if first or late:
            for who in [*members, *owners] if late else members:
                processes.send(who, signal.SIGKILL if late else signal.SIGTERM)
        first = False
        time.sleep(_POLL_EVERY_S)
    reason = f"stopped; its folder is gone: {home.runs.name}/{run.folder}"
    runs.end(conn, run.id, state="cancelled", reason=reason, exit_code=None, ended_at=time.time())
    _run_hook(home, conn, run.id)


def _run_hook(home: Home, conn: Connection, number: int) -> None:
    ended = runs.get(conn, number)
    if ended is not None:
        run_end_hook(home, ended)


def wait_for_end(
    home: Home, conn: Connection, number: int, say: Callable[[str], None] = lambda text: None
) -> Run:
    """Returns the run when it has ended; recovers it if its supervisor is killed meanwhile.

    `say` gets the reason for a delay. If the database cannot be written, the folder's end counts.
    """
    next_settle, last_message = 0.0, None
    started = time.monotonic()
    decided_at: float | None = None
    while True:
        run = runs.get(conn, number)
        if run is None:
            raise NoSuchRun(f"run {number} was deleted by another command")
        if run.ended:
            return run
        folder = RunFolder(home.runs / run.folder)
        if time.monotonic() < next_settle:
            time.sleep(_POLL_EVERY_S)
            continue
        problem = None
        ending = run_folder.read_ending(folder.outcome)
        if ending is not None:
            decided_at = decided_at or time.monotonic()
            if time.monotonic() - decided_at > _RECORDED_WITHIN_S:
                problem = "its supervisor could not write it yet"
        try:
            settle(home, conn)
        except DatabaseBusy:
            pass  # the writer will be done soon
        except DatabaseDamaged:
            raise  # no wait repairs it
        except StorageError as error:
            problem = error.message
        if problem is not None and ending is not None:
            say(f"run {number} has ended; only its folder says so, not the database: {problem}")
            return run._replace(state=ending.state, reason=ending.reason, ended_at=ending.ended_at)
        next_settle = time.monotonic() + _SETTLE_EVERY_S
        message = _delay_message(number, folder, time.monotonic() - started)
        if message is not None and message != last_message:
            say(message)
            last_message = message


def _delay_message(number: int, folder: RunFolder, waited_s: float) -> str | None:
    """Why a stopped run has not ended yet; None before the delay is unusual."""
    grace_s = read_stop(folder)
    if grace_s is None or waited_s < grace_s + _MESSAGE_AFTER_S:
        return None
    woken = wake_supervisor(folder)
    if woken is not None:
        return (
            f"run {number}: its supervisor (PID {woken.pid}) had been stopped by a signal; it continues now"
        )
    holders = processes.holders(folder.supervisor_lock)
    supervisor = (
        f"its supervisor (PID {holders[0].pid}) is still running" if holders else "it has no supervisor"
    )
    return f"run {number} was asked to stop and has not ended: {supervisor}"
