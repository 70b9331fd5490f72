"""Deletes a run: moves its folder to `pending/`, then deletes the files, the row and the empty folder.

In this order because people delete when the disk is full: no step before the files go needs disk space.
If the process is killed, the folder in `pending/` says what is left to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kgops.errors import NoSuchRun, Unavailable, Usage
from kgops.settings import Home
from kgops.supervisor import pending
from kgops.supervisor.ownership import take_over
from kgops.supervisor.run_folder import RunFolder, is_own, read_ending
from storage import runs
from storage.database import Connection, open_writer
from storage.errors import DatabaseReadOnly, StorageError
from storage.runs import Run


def delete_run(home: Home, conn: Connection, number: int) -> Path | None:
    """Deletes the run, or raises and leaves it whole. `conn` may be read-only: on a full disk no writer can open
    before the files are deleted. Returns the folder that it leaves, where the run's is a link."""
    run = must_have_ended(home, conn, number)
    folder = RunFolder(home.runs / run.folder)
    if folder.path.is_symlink():
        return _unlink(home, conn, run, folder)
    try:
        lock = take_over(home, number, folder)
    except FileNotFoundError:
        if pending.is_being_deleted(home, run.folder):
            raise NoSuchRun(f"run {number} is being deleted by another command") from None
        _delete_row(home, conn, number)
        return None
    except OSError as error:
        raise _cannot(number, error) from error
    if lock is None:
        raise _is_busy(number)
    try:
        must_have_ended(home, conn, number)  # it may have been resumed before we had the lock
        try:
            moved = pending.move_here(home, run.folder)
        except FileNotFoundError as error:
            raise NoSuchRun(f"run {number} was just deleted by another command") from error
        except OSError as error:
            raise _cannot(number, error) from error
        finish_deletion(home, conn, moved, run)
        return None
    finally:
        os.close(lock)


def _unlink(home: Home, conn: Connection, run: Run, folder: RunFolder) -> Path:
    """Removes the link and the row. A resume at the same moment finds no folder, or is refused by the row."""
    left = Path(os.path.realpath(folder.path))
    lock = take_over(home, run.id, folder) if is_own(folder) else os.open(home.pending, os.O_RDONLY)
    if lock is None:
        raise _is_busy(run.id)
    try:
        must_have_ended(home, conn, run.id)
        folder.path.unlink(missing_ok=True)
        _delete_row(home, conn, run.id)
    except OSError as error:
        raise _cannot(run.id, error) from error
    finally:
        os.close(lock)
    return left


def _is_busy(number: int) -> Unavailable:
    return Unavailable(
        f"run {number} is being resumed or deleted by another command", "try again in a second"
    )


def _cannot(number: int, error: OSError) -> Unavailable:
    return Unavailable(
        f"cannot delete run {number}: {error.filename}: {error.strerror}",
        "nothing was deleted; `kgops doctor` checks the home",
    )


def finish_deletion(home: Home, conn: Connection, moved: Path, run: Run | None) -> None:
    """Deletes the folder in `pending/`, whose lock is held, and its run's row if it has one."""
    if moved.is_symlink():
        moved.unlink()
        if run is not None:
            _delete_row(home, conn, run.id)
        return
    stuck = _empty(moved, keep=RunFolder(moved).supervisor_lock)
    if stuck is not None:
        pending.move_back(home, moved.stem)
        path, error = stuck
        raise Unavailable(
            f"{moved.stem} cannot be deleted: {path.relative_to(moved)}: {error.strerror}; "
            "its other files are deleted",
            f"check {home.runs / moved.stem}, then delete the run again",
        )
    if run is not None:
        try:
            _delete_row(home, conn, run.id)
        except StorageError as error:
            raise Unavailable(
                f"the files of run {run.id} are deleted, but its database row is not: {error.message}",
                "the next command that can write to the database deletes it",
            ) from error
    RunFolder(moved).supervisor_lock.unlink(missing_ok=True)
    try:
        moved.rmdir()
    except OSError:
        pass  # another command just put its lock there, and finishes the deletion


def _delete_row(home: Home, conn: Connection, number: int) -> None:
    try:
        runs.delete(conn, number)
    except DatabaseReadOnly:
        writer = open_writer(home.database)
        try:
            runs.delete(writer, number)
        finally:
            writer.close()


def must_have_ended(home: Home, conn: Connection, number: int) -> Run:
    """The run, or why it cannot be deleted yet."""
    run = runs.get(conn, number)
    if run is None:
        raise NoSuchRun(f"there is no run {number}")
    if not run.ended and read_ending(RunFolder(home.runs / run.folder).outcome) is not None:
        raise Unavailable(
            f"run {number} has ended, and the database does not say so yet",
            "if its disk is full, free some space there; then delete the run",
        )
    if not run.ended:
        raise Usage(f"run {number} is {run.state}", f"stop it first: kgops stop {number}")
    return run


def _empty(folder: Path, *, keep: Path) -> tuple[Path, OSError] | None:
    """Removes all files inside but `keep`; returns the first that cannot be removed, and why."""
    stuck: tuple[Path, OSError] | None = None
    _make_writable(folder)
    for path, is_folder in _deepest_first(folder):
        if path == keep:
            continue
        try:
            path.rmdir() if is_folder else path.unlink(missing_ok=True)
        except FileNotFoundError:
            continue
        except OSError as error:
            stuck = stuck or (path, error)
    return stuck


def _deepest_first(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Every path below, and whether it is a folder; links are not followed."""
    for root, folders, files in os.walk(folder, topdown=False):
        for name in files:
            yield Path(root, name), False
        for name in folders:
            path = Path(root, name)
            yield path, not path.is_symlink()


def _make_writable(folder: Path) -> None:
    """Restores access to folders whose permissions a worker removed."""
    for root, folders, _ in os.walk(folder):
        for path in (Path(root, name) for name in folders):
            if not path.is_symlink() and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                try:
                    path.chmod(0o700)
                except OSError:
                    pass  # the removal reports the error
