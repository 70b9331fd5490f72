"""Stops a run, or waits for its end, from a process that does not supervise it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from kgops.errors import KgopsError, NoSuchRun, Unavailable
from kgops.settings import Home
from kgops.supervisor import gate, processes, queue, run_folder
from kgops.supervisor.attempt_end import end_without_attempt
from kgops.supervisor.end_hook import run_end_hook
from kgops.supervisor.ownership import take_over, wake_supervisor
from kgops.supervisor.plan_file import read_plan, recorded_plan
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.run_folder import RunFolder, is_own, must_be_own, number_of, read_stop, request_stop
from kgops.supervisor.settle import settle
from storage import runs
from storage.database import REBUILD, Connection, integrity_problems, open_reader
from storage.errors import DatabaseBusy, DatabaseDamaged, DatabaseNewer, StorageError
from storage.runs import Run

_POLL_EVERY_S = 0.1
_GRACE_S = 10.0  # where the plan cannot be read
_SETTLE_EVERY_S = 1.0
_RECORDED_WITHIN_S = 10.0  # an end, unless the database cannot be written
ANSWERS_WITHIN_S = 8.0  # beyond a stop's grace; with the start of a command and its last message at most ten


def ask_to_stop(conn: Connection, folder: RunFolder, number: int, grace_s: float | None) -> float:
    """Writes the request into the run's folder, where it stays until it is heeded; returns its grace in seconds."""
    grace_s = recorded_plan(conn, folder, number).grace_s if grace_s is None else grace_s
    if folder.path.is_dir() and is_own(folder):
        _request(folder, number, grace_s)
    return grace_s


def _request(folder: RunFolder, number: int, grace_s: float) -> None:
    try:
        request_stop(folder, grace_s)
    except OSError as error:
        raise Unavailable(
            f"cannot ask run {number} to stop: {folder.stop}: {error.strerror}",
            "`kgops doctor` checks the home",
        ) from error
    wake_supervisor(folder)


def stop_run(home: Home, conn: Connection, run: Run, grace_s: float | None) -> None:
    """Requests a stop; cancels a queued run at once. Does nothing to an ended run.

    Needs no disk space, and only read access to the database.
    """
    if run.ended:
        return
    folder = RunFolder(home.runs / run.folder)
    grace_s = ask_to_stop(conn, folder, run.id, grace_s)
    if not folder.path.is_dir() or not is_own(folder):
        _stop_without_folder(home, conn, run, grace_s)
        return
    # The holder of the lock sees the request. If nobody holds it, the run is queued and has no process.
    lock = take_over(home, run.id, folder)
    if lock is None:
        return
    try:
        now = runs.get(conn, run.id)
        if now is not None and now.state in runs.WAITING:
            end_without_attempt(conn, folder, run.id, "cancelled", "stopped while queued")
            _run_hook(home, conn, run.id)
    except StorageError:
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


def stop_by_folder(
    home: Home, name: str, grace_s: float | None, *, until: float | None, problem: StorageError
) -> Stopped:
    """Stops a run without the database: by number, or the one with the highest number for `last`. Waits for its
    processes if `until` is given: then, on the monotonic clock, Unavailable says what holds."""
    folders = {number_of(path.name): path for path in sorted(home.runs.glob("*")) if number_of(path.name)}
    number = max(filter(None, folders), default=0) if name == "last" else int(name) if name.isdecimal() else 0
    if number not in folders:
        raise NoSuchRun(f"there is no run {name:.40} in {home.runs}", "`ls` lists the folders of runs there")
    folder = RunFolder(folders[number])
    must_be_own(number, folder)
    if run_folder.read_ending(folder.outcome) is None:
        grace_s = _grace_in(folder) if grace_s is None else grace_s
        _request(folder, number, grace_s)
        if until is not None:
            _wait_for_processes(home, number, folder, until + grace_s, problem.message)
    ending = run_folder.read_ending(folder.outcome)
    return Stopped(number, ending.state if ending else None, ending.reason if ending else None)


def _grace_in(folder: RunFolder) -> float:
    try:
        return read_plan(folder).grace_s
    except (KgopsError, OSError):
        return _GRACE_S


def _wait_for_processes(home: Home, number: int, folder: RunFolder, until: float, problem: str) -> None:
    """Returns when no process of the run is left; ends them itself if the run has no supervisor."""
    while True:
        lock = take_over(home, number, folder)
        if lock is None:
            if time.monotonic() > until:
                raise _not_ended(number, folder, problem)
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
    first, begun = True, time.monotonic()
    while owners := processes.supervisors(home.path, run.id):  # and their gates
        above = {who.pid for who in owners}
        below = [pid for pid in processes.descendants(above) if pid not in above]
        members = [who for pid in below if (who := processes.identify(pid)) is not None]
        waited_s = time.monotonic() - begun
        if waited_s > grace_s + ANSWERS_WITHIN_S:
            raise Unavailable(
                f"run {run.id} was stopped, but its process {owners[0].pid} does not end",
                "a process that waits for a disk or a driver ends when that answers; then stop the run again",
            )
        late = not members or waited_s > grace_s
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


class FolderEnd:
    """Notices an end that only a run's folder has, because its supervisor cannot write it to the database."""

    def __init__(self, home: Home, say: Callable[[str], None]) -> None:
        self._home, self._say = home, say
        self._ended_at: float | None = None
        self._next_check = 0.0
        self._said: str | None = None

    def look(self, run: Run, problem: str | None, *, at_once: bool = False) -> Run | None:
        """The run as its folder has it, if the database has not followed in time. Raises DatabaseDamaged if that is
        why. `problem`: what holds the database, if known; said while the run goes on."""
        folder = RunFolder(self._home.runs / run.folder)
        ending = run_folder.read_ending(folder.outcome)
        if ending is None and not _has_exited(folder):
            self._ended_at = None
            if problem is not None:
                self._say_once(f"run {run.id} goes on; its record may be outdated: {problem}")
            return None
        now = time.monotonic()
        self._ended_at = self._ended_at or now
        is_late = problem is not None or at_once or now - self._ended_at > _RECORDED_WITHIN_S
        if ending is not None and is_late:
            why = problem or "its supervisor could not write it yet"
            self._say_once(f"run {run.id} has ended; only its folder says so, not the database: {why}")
            return run._replace(state=ending.state, reason=ending.reason, ended_at=ending.ended_at)
        if ending is None and is_late and now >= self._next_check:
            self._next_check = now + _RECORDED_WITHIN_S
            with suppress(DatabaseBusy):
                _must_be_intact(self._home)
            self._say_once(
                f"run {run.id}: its worker has ended; {folder.supervisor_log} says why its end is not recorded yet"
            )
        return None

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._say(text)


def _has_exited(folder: RunFolder) -> bool:
    last = folder.last_attempt()
    return last > 0 and gate.read_exit(folder.attempt(last)) is not None


def settle_and_check(home: Home, conn: Connection, number: int) -> None:
    """Settles all runs. Raises DatabaseDamaged where the supervisor of run `number` has left for that reason: a
    connection that was open before may not notice."""
    done = settle(home, conn)
    if number in (*done.adopted, *done.restarted):
        _must_be_intact(home)


def _must_be_intact(home: Home) -> None:
    conn = open_reader(home.database)
    try:
        problems = integrity_problems(conn)
    finally:
        conn.close()
    if problems:
        raise DatabaseDamaged(f"the database {home.database} is damaged: {problems[0]}", REBUILD)


def wait_for_end(
    home: Home,
    conn: Connection,
    number: int,
    say: Callable[[str], None] = lambda text: None,
    *,
    stopped_within_s: float | None = None,
) -> Run:
    """Returns the run when it has ended; recovers it if its supervisor is killed meanwhile.

    `say` gets the reason for a delay. If the database cannot be written, the folder's end counts. A run that was asked
    to stop has `stopped_within_s` for it; then Unavailable says what holds.
    """
    run = runs.get(conn, number)
    folder_end = FolderEnd(home, say)
    next_settle, begun = 0.0, time.monotonic()
    problem = None
    while True:
        try:
            run = runs.get(conn, number)
            if run is None:
                raise NoSuchRun(f"run {number} was deleted by another command")
            if run.ended:
                return run
            if time.monotonic() >= next_settle:
                problem = None
                settle_and_check(home, conn, number)
        except (DatabaseDamaged, DatabaseNewer):
            raise  # no wait helps
        except DatabaseBusy as error:  # the writer will be done soon, but not every stop can wait for it
            problem = error.message if stopped_within_s is not None else None
        except StorageError as error:
            if run is None:
                raise
            problem = error.message
        if time.monotonic() >= next_settle:
            next_settle = time.monotonic() + _SETTLE_EVERY_S
        is_late = stopped_within_s is not None and time.monotonic() - begun > stopped_within_s
        assert run is not None
        ended = folder_end.look(run, problem, at_once=is_late)
        if ended is not None:
            return ended
        if is_late:
            raise _not_ended(number, RunFolder(home.runs / run.folder), problem)
        time.sleep(_POLL_EVERY_S)


def _not_ended(number: int, folder: RunFolder, problem: str | None) -> Unavailable:
    """Says what holds a run that was asked to stop, and what to do."""
    text = f"run {number} was asked to stop and has not ended"
    woken = wake_supervisor(folder)
    if woken is not None:
        return Unavailable(
            f"{text}: its supervisor (PID {woken.pid}) had been stopped by a signal",
            "it continues now: stop the run again in a moment",
        )
    holders = processes.holders(folder.supervisor_lock)
    if holders:
        return Unavailable(
            f"{text}: its supervisor (PID {holders[0].pid}) is still running{'; ' + problem if problem else ''}",
            f"the request stays; `kill -9 {holders[0].pid}` hands the run to another supervisor, which heeds it",
        )
    return Unavailable(
        f"{text}: it has no supervisor{'; ' + problem if problem else ''}",
        "the request stays: the next kgops command that can use the database starts one, which heeds it",
    )
