"""Lists launches, resumes and deletions in progress, as entries of the folder `pending/`. If an entry's lock is free,
its process died, and the next command finishes its work.

A launch and a resume have a marker file. A deletion has the run's folder itself: moving it needs no disk space and
hides it from other commands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kgops.errors import Unavailable
from kgops.jobs.files import NotAFile, sync
from kgops.settings import Home
from kgops.supervisor import locks
from kgops.supervisor.run_folder import RunFolder, number_of
from storage import runs
from storage.database import Connection

Work = Literal["launch", "resume", "delete"]
_SUFFIXES: dict[Work, str] = {"launch": ".new", "resume": ".resume", "delete": ".delete"}
_WORKS = {suffix: work for work, suffix in _SUFFIXES.items()}
# A command that recovers runs may briefly hold a fresh marker's lock, because it looked abandoned.
_LOCK_WAIT_S = 10.0
_NUMBERED = re.compile(r"(?:\.new-)?([0-9]{4,12})-")


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Unfinished work of a dead process; we hold `lock` until it is closed."""

    path: Path
    lock: int
    work: Work

    @property
    def folder(self) -> str:
        """Name of the run's folder in `runs/`."""
        return self.path.stem


@contextmanager
def announce(home: Home, folder: str, work: Work) -> Iterator[None]:
    """Creates the marker for the duration of the work; the marker stays if the work fails."""
    path = home.pending / (folder + _SUFFIXES[work])
    lock = locks.take(path, patience_s=_LOCK_WAIT_S)
    if lock is None:
        raise Unavailable(f"{path} is locked by another process", "try again in a moment")
    try:
        sync(home.pending)
        yield
        try:
            path.unlink()
        except OSError:
            pass  # the work is done: the next command finds the marker abandoned, and removes it
    finally:
        os.close(lock)


def move_here(home: Home, folder: str) -> Path:
    """Moves the run's folder into `pending/` and returns its path. Its supervisor lock must be held."""
    target = home.pending / (folder + _SUFFIXES["delete"])
    (home.runs / folder).rename(target)
    _sync_both(home)  # before its row goes: a power cut must not leave a folder without one
    return target


def move_back(home: Home, folder: str) -> None:
    (home.pending / (folder + _SUFFIXES["delete"])).rename(home.runs / folder)
    _sync_both(home)


def _sync_both(home: Home) -> None:
    try:
        sync(home.runs)
        sync(home.pending)
    except OSError:
        pass  # deleting does not need the guarantee


def is_anything(home: Home) -> bool:
    """Whether any launch, resume or deletion is in progress or abandoned."""
    return any(Path(name).suffix in _WORKS for name in _names(home.pending))


def is_being_launched(home: Home, folder: str) -> bool:
    return locks.is_held(home.pending / (folder + _SUFFIXES["launch"]))


def is_being_deleted(home: Home, folder: str) -> bool:
    return os.path.lexists(home.pending / (folder + _SUFFIXES["delete"]))


def abandoned(home: Home) -> Iterator[Abandoned]:
    """Yields one at a time, so that a failure holds no lock of the others."""
    for path in sorted(home.pending / name for name in _names(home.pending)):
        work = _WORKS.get(path.suffix)
        if work is None:
            continue
        if work == "delete" and path.is_symlink():  # as an older kgops left it; it needs no lock
            yield Abandoned(path, os.open(home.pending, os.O_RDONLY | os.O_CLOEXEC), work)
            continue
        try:
            lock = locks.take(RunFolder(path).supervisor_lock if work == "delete" else path)
        except (
            FileNotFoundError,
            NotADirectoryError,
            NotAFile,
        ):  # finished meanwhile, or none of our entries
            continue
        if lock is not None:
            yield Abandoned(path, lock, work)


def highest_number(home: Home) -> int:
    """Highest number of runs being created or deleted: taken, though no row may have it."""
    return _highest(home.pending)


def highest_folder(home: Home) -> int:
    """Highest number of all run folders: a lost or older database may not know some. Lists the folder."""
    return _highest(home.runs)


def folders_past_the_record(home: Home, conn: Connection, *, at_most: int = 5) -> list[str]:
    """Run folders with numbers the database has not assigned yet: it was lost, or replaced by an older one."""
    next_number = runs.next_number(conn)
    if highest_folder(home) < next_number:
        return []
    without_marker = [
        (name, number)
        for name in _names(home.runs)
        if (number := number_of(name)) is not None
        and number >= next_number
        and not (home.pending / (name + _SUFFIXES["launch"])).exists()
    ]
    # Read again: a launch commits its row before it removes its marker, and may have done both since the first read.
    next_number = runs.next_number(conn)
    return sorted(name for name, number in without_marker if number >= next_number)[:at_most]


def _highest(folder: Path) -> int:
    matches = (_NUMBERED.match(name) for name in _names(folder))
    return max((int(match[1]) for match in matches if match), default=0)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - there may be 100,000
    except FileNotFoundError:
        return []


def needs_settling(home: Home, conn: Connection) -> bool:
    """Whether a run is half created, queued, or unfinished without a supervisor."""
    if is_anything(home):
        return True
    return any(
        run.state in runs.WAITING or not _is_supervised(RunFolder(home.runs / run.folder))
        for run in runs.in_states(conn, runs.UNFINISHED)
    )


def may_be_outdated(home: Home, conn: Connection) -> bool:
    """Whether a run is half created, or called starting or running without a supervisor that would know its end."""
    active = runs.in_states(conn, runs.ACTIVE)
    return is_anything(home) or not all(_is_supervised(RunFolder(home.runs / run.folder)) for run in active)


def _is_supervised(folder: RunFolder) -> bool:
    try:
        return locks.is_held(folder.supervisor_lock)
    except OSError:  # the recovery reports it
        return False
