"""Settling runs whose processes are gone: their true state."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kgops.errors import KgopsError, Unavailable
from kgops.settings import Home
from kgops.supervisor import locks, pending, processes, queue, rebuild, run_folder
from kgops.supervisor.attempt_end import commit_decided, conclude, ending_of, new_intake, write_end
from kgops.supervisor.deletion import finish_deletion
from kgops.supervisor.end_hook import run_end_hook
from kgops.supervisor.ownership import must_be_orphaned, take_over
from kgops.supervisor.plan_file import recorded_plan
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.run_folder import RunFolder, is_own
from kgops.supervisor.spawn import start_supervisor
from storage import runs
from storage.database import Connection
from storage.runs import Run

# Errors of this process: another one, or a retry, may recover the run.
_TEMPORARY_ERRORS = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOLCK),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR),
    }
)


@dataclass(slots=True)
class Settled:
    """What was recovered; usually all empty."""

    restored: list[int] = field(default_factory=list)
    adopted: list[int] = field(default_factory=list)
    restarted: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)  # what could not be recovered, each with its run


def settle(home: Home, conn: Connection) -> Settled:
    done = Settled()
    _finish_pending(home, conn, done)
    for run in runs.in_states(conn, runs.UNFINISHED):
        with _isolate_errors(home, conn, run, done):
            _settle_run(home, conn, run, done)
    for number in done.ended:
        if (ended := runs.get(conn, number)) is not None:
            run_end_hook(home, ended)
    done.started = queue.dispatch(home, conn)
    return done


@contextmanager
def _isolate_errors(home: Home, conn: Connection, run: Run, done: Settled) -> Iterator[None]:
    """Keeps one run's broken files from stopping the recovery of others."""
    try:
        yield
    except (OSError, KgopsError, TypeError, ValueError, KeyError, AttributeError) as error:
        problem = error.message if isinstance(error, KgopsError) else f"{error}"
        reason = f"cannot be recovered: {problem:.300}"
        done.troubles.append(f"run {run.id} {reason}")
        if isinstance(error, (OSError, Unavailable)) and reason != run.reason:
            # It may be readable in a second.
            runs.set_reason(conn, run.id, run.state, reason)
        elif not isinstance(error, Unavailable) and getattr(error, "errno", None) not in _TEMPORARY_ERRORS:
            _end_broken_run(home, conn, run, problem, done)


def _end_broken_run(home: Home, conn: Connection, run: Run, problem: str, done: Settled) -> None:
    """Ends a run with unreadable files, unless one of its processes is alive."""
    folder = RunFolder(home.runs / run.folder)
    try:
        tag = Tree(folder, folder.last_attempt()).tag
    except OSError:
        tag = None
    if processes.supervisors(home.path, run.id) or (tag is not None and processes.tagged(tag)):
        return
    reason = f"its files cannot be used: {problem:.300}"
    if runs.end(conn, run.id, state="interrupted", reason=reason, exit_code=None, ended_at=time.time()):
        done.ended.append(run.id)


def _settle_run(home: Home, conn: Connection, run: Run, done: Settled) -> None:
    folder = RunFolder(home.runs / run.folder)
    if not folder.path.is_dir() or not is_own(folder):
        _settle_without_folder(home, conn, run, done)
        return
    _make_accessible(folder)
    if run.state in runs.WAITING:
        _commit_cancelled(home, conn, run, folder, done)
    elif run.state in runs.ACTIVE and not locks.is_held(folder.supervisor_lock):
        _recover(home, conn, run.id, folder, done)


def _settle_without_folder(home: Home, conn: Connection, run: Run, done: Settled) -> None:
    """A folder may be away for a moment: that ends only a run that has no process left and waits for none."""
    is_link = (home.runs / run.folder).is_symlink()
    gone = f"its folder is {'a link elsewhere' if is_link else 'gone'}: {home.runs.name}/{run.folder}"
    alive = processes.supervisors(home.path, run.id)
    if run.state in runs.WAITING:
        if run.reason != gone:
            runs.set_reason(conn, run.id, run.state, gone)
        return
    if alive:
        done.troubles.append(f"run {run.id} goes on (PID {alive[0].pid}), but {gone}")
        return
    runs.end(conn, run.id, state="interrupted", reason=gone, exit_code=None, ended_at=time.time())
    done.ended.append(run.id)


def _commit_cancelled(home: Home, conn: Connection, run: Run, folder: RunFolder, done: Settled) -> None:
    """Commits the end of a run that was stopped while queued, when the database was full."""
    if run_folder.read_ending(folder.outcome) is None or (lock := take_over(home, run.id, folder)) is None:
        return
    try:
        ending, now = run_folder.read_ending(folder.outcome), runs.get(conn, run.id)
        if ending is not None and now is not None and now.state in runs.WAITING:
            plan = recorded_plan(conn, folder, run.id)
            commit_decided(conn, folder, plan, ending, new_intake(conn, folder, plan, reads_log=False))
            done.ended.append(run.id)
    finally:
        os.close(lock)


def _make_accessible(folder: RunFolder) -> None:
    """Restores the user's access to a folder whose permissions a worker removed."""
    if folder.path.is_symlink():
        return
    if not os.access(folder.path, os.R_OK | os.W_OK | os.X_OK) and folder.path.stat().st_uid == os.geteuid():
        folder.path.chmod(0o700)


def _recover(home: Home, conn: Connection, number: int, folder: RunFolder, done: Settled) -> None:
    """Recovers an active run whose lock is free: its supervisor is dead."""
    lock = take_over(home, number, folder)
    if lock is None:
        return
    is_ours = True
    try:
        run = runs.get(conn, number)
        if run is None or run.state not in runs.ACTIVE:
            return
        must_be_orphaned(home, number, folder, "supervisor.lock was replaced")
        last = folder.last_attempt()
        tree = Tree(folder, last)
        ending = run_folder.read_ending(folder.outcome)
        alive = last > 0 and tree.is_alive()
        dead = last > 0 and not alive and folder.attempt(last).begun.exists()
        plan = recorded_plan(conn, folder, number)
        intake = new_intake(conn, folder, plan, reads_log=False)
        if ending is not None and not alive:
            commit_decided(conn, folder, plan, ending, intake)
            done.ended.append(number)
            return
        # Log patterns are left to a supervisor: they may take longer than a command should.
        can_end_here = dead and not plan.reads_log and not folder.attempt(last).closed.exists()
        if can_end_here and conclude(conn, folder, plan, last, intake).next == "end":
            done.ended.append(number)
            return
        start_supervisor(home, number, folder, lock)
        is_ours = False
        (done.adopted if alive else done.restarted).append(number)
    finally:
        if is_ours:
            os.close(lock)


def _finish_pending(home: Home, conn: Connection, done: Settled) -> None:
    """Finishes launches, resumes and deletions that were killed."""
    for work in pending.abandoned(home):
        try:
            if work.work == "delete":
                finish_deletion(home, conn, work.path, runs.with_folder(conn, work.folder))
            elif work.work == "resume":
                _finish_resume(home, conn, work.folder)
                work.path.unlink(missing_ok=True)
            else:
                _finish_launch(home, conn, work.folder, done)
                work.path.unlink(missing_ok=True)
        except (OSError, KgopsError) as error:
            done.troubles.append(f"{work.path.name} cannot be finished: {error}")
        finally:
            os.close(work.lock)


def _finish_resume(home: Home, conn: Connection, name: str) -> None:
    """A resume killed before the row was reopened: the run stays ended, and its folder is made to say so."""
    run = runs.with_folder(conn, name)
    folder = RunFolder(home.runs / name)
    if run is None or not run.ended or not folder.path.is_dir():
        return
    lock = take_over(home, run.id, folder)
    if lock is None:
        return
    try:
        write_end(folder, ending_of(run, folder.last_attempt()))
    finally:
        os.close(lock)


def _finish_launch(home: Home, conn: Connection, name: str, done: Settled) -> None:
    folder = RunFolder(home.runs / name)
    shutil.rmtree(home.runs / f".new-{name}", ignore_errors=True)
    if not folder.path.is_dir() or folder.path.is_symlink():
        return  # killed before the folder was complete: nothing was accepted
    try:
        number = rebuild.restore_run(conn, folder)
    except KgopsError:
        return  # `kgops doctor --rebuild` reports unreadable folders
    if number is not None:
        done.restored.append(number)
