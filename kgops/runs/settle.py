"""After any crash: every run brought to a true state by whoever looks next. Idempotent, under the locks."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kgops.errors import KgopsError, Unavailable
from kgops.jobs.files import write_json
from kgops.runs import locks, pending, queue, rebuild, slot
from kgops.runs.conclude import commit_decided, conclude, new_intake
from kgops.runs.folder import RunFolder
from kgops.runs.plan_file import Plan, read_plan
from kgops.runs.spawn import start_supervisor
from kgops.runs.trees import Tree
from kgops.settings import Home
from storage import runs
from storage.database import Connection


@dataclass(slots=True)
class Settled:
    """What had to be done; all empty on a quiet day."""

    taken_in: list[int] = field(default_factory=list)
    adopted: list[int] = field(default_factory=list)
    restarted: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    started: list[int] = field(default_factory=list)


def settle(home: Home, conn: Connection) -> Settled:
    done = Settled()
    _finish_pending(home, conn, done)
    for run in runs.in_states(conn, runs.UNFINISHED):
        folder = RunFolder(home.runs / run.folder)
        if not folder.path.is_dir():
            runs.end(
                conn,
                run.id,
                state="interrupted",
                reason="its folder is gone",
                exit_code=None,
                ended_at=time.time(),  # when it was found: nobody knows more
            )
            done.ended.append(run.id)
        elif run.state in runs.ACTIVE and not locks.is_held(folder.supervisor_lock):
            _recover(home, conn, run.id, folder, done)
    done.started = queue.dispatch(home, conn)
    return done


def _recover(home: Home, conn: Connection, number: int, folder: RunFolder, done: Settled) -> None:
    """A run that is starting or running while its lock is free: its supervisor is dead."""
    lock = locks.take(folder.supervisor_lock)
    if lock is None:
        return
    handed_on = False
    try:
        run = runs.get(conn, number)
        if run is None or run.state not in runs.ACTIVE:
            return
        last = folder.last_attempt()
        tree = Tree(folder, last)
        ending = slot.read_ending(folder.outcome)
        alive = last > 0 and tree.is_alive()
        dead = last > 0 and not alive and folder.attempt(last).begun.exists()
        plan = _plan_of(conn, number, folder)
        intake = new_intake(conn, folder, plan)
        if ending is not None and not alive:
            commit_decided(conn, folder, plan, ending, intake)
            done.ended.append(number)
        elif dead and not folder.attempt(last).closed.exists():
            if conclude(conn, folder, plan, last, intake).next == "end":
                done.ended.append(number)
            else:
                handed_on = True
        else:
            handed_on = True
        if handed_on:
            (done.adopted if alive else done.restarted).append(number)
            start_supervisor(home, number, folder, lock)
    finally:
        if not handed_on:
            os.close(lock)


def _plan_of(conn: Connection, number: int, folder: RunFolder) -> Plan:
    """The row holds the plan too: one lost from its folder must not stop every command that settles."""
    try:
        return read_plan(folder, number)
    except Unavailable:
        write_json(folder.plan, runs.spec(conn, number).plan)
        return read_plan(folder, number)


def _finish_pending(home: Home, conn: Connection, done: Settled) -> None:
    """What a launch or a deletion left half done when it was killed."""
    for marker in pending.abandoned(home):
        try:
            if marker.is_deletion:
                _finish_deletion(home, conn, marker.folder)
            else:
                _finish_launch(home, conn, marker.folder, done)
        finally:
            marker.remove()


def _finish_launch(home: Home, conn: Connection, name: str, done: Settled) -> None:
    folder = RunFolder(home.runs / name)
    shutil.rmtree(home.runs / f".new-{name}", ignore_errors=True)
    if not folder.path.is_dir():
        return  # killed before the job was whole: nothing had been accepted
    try:
        number = rebuild.take_in(conn, folder)
    except KgopsError:
        return  # `kgops doctor --rebuild` names folders that cannot be read
    if number is not None:
        done.taken_in.append(number)


def _finish_deletion(home: Home, conn: Connection, name: str) -> None:
    if runs.with_folder(conn, name) is None:
        shutil.rmtree(home.runs / name, ignore_errors=True)


def delete_run(home: Home, conn: Connection, number: int) -> bool:
    """Row and folder, in an order that a kill at any moment leaves whole or gone. False if it has not ended."""
    run = runs.get(conn, number)
    if run is None or not run.ended:
        return False
    with pending.announce(home, run.folder, deletion=True):
        if not runs.delete(conn, number):
            return False
        _remove(home.runs / run.folder)
    return True


def _remove(folder: Path) -> None:
    def gone_already(function: Callable[..., object], path: str, error: BaseException) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    shutil.rmtree(folder, onerror=lambda f, p, info: gone_already(f, p, info[1]))
