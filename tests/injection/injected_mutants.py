"""kgops with one planted fault for each kind of injection: what an attack that fails a call must notice."""

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mutants

from kgops.errors import Unavailable
from kgops.jobs import files
from kgops.settings import Home
from kgops.supervisor import attempt_end, launch, locks, queue, run_folder, settle, spawn, supervise
from kgops.supervisor.run_folder import RunFolder
from storage.database import Connection, open_writer


def refused_launch_clears_the_newest_folder() -> None:
    """A launch that fails removes what it finds, not what it made."""
    real = launch._record

    def record(home: Home, conn: Connection, accepted: launch.Accepted) -> int:
        try:
            return real(home, conn, accepted)
        except Exception:
            shutil.rmtree(max(home.runs.glob("[0-9]*")))
            raise

    launch._record = record


def full_disk_is_taken_as_written() -> None:
    """No space is no reason to stop: the rest of the launch goes on without the file."""

    def with_trouble_passed_over(write: Callable[..., None]) -> Callable[..., None]:
        def try_to_write(*given: Any, **more: Any) -> None:
            try:
                write(*given, **more)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

        return try_to_write

    careless = with_trouble_passed_over(files.write_durably)
    files.write_durably = careless
    run_folder.reserve = with_trouble_passed_over(run_folder.reserve)


def worker_that_cannot_start_has_succeeded() -> None:
    """What never ran has no error."""
    real = attempt_end.end_without_attempt

    def end(conn: Connection, folder: RunFolder, number: int, state: str, reason: str, lost: int = 0) -> None:
        real(conn, folder, number, "succeeded" if state == "failed" else state, reason, lost)

    vars(supervise)["end_without_attempt"] = end


def lock_error_is_free() -> None:
    """A lock that cannot be asked for is nobody's, so it is ours; and the kernel is not asked who is at work."""
    real = locks.take

    def take(path: Path, *, patience_s: float = 0.05) -> int | None:
        try:
            return real(path, patience_s=patience_s)
        except OSError as error:
            if error.errno != errno.ENOLCK:
                raise
            return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    locks.take = take
    vars(settle)["must_be_orphaned"] = lambda *given: None


def supervisor_that_cannot_start_is_an_end() -> None:
    """A machine that has no process left for a moment fails the run for good."""
    real = spawn.start_supervisor

    def start(home: Home, number: int, folder: RunFolder, lock: int) -> None:
        try:
            real(home, number, folder, lock)
        except Unavailable as error:
            conn = open_writer(home.database)
            attempt_end.end_without_attempt(conn, folder, number, "failed", str(error))

    vars(queue)["start_supervisor"] = start


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault, the calls that uncover it, and what is then said of it."""

    plant: Callable[[], None]
    command: str
    kind: str
    calls: str
    told: str


MUTANTS = {
    one.plant.__name__: one
    for one in (
        Mutant(mutants.folder_is_no_record, "launcher", "kill", "fsync /home/runs$", "has no row"),
        Mutant(
            refused_launch_clears_the_newest_folder, "launcher", "EIO", "mkdir /home/runs/.new", "was removed"
        ),
        Mutant(
            full_disk_is_taken_as_written, "launcher", "ENOSPC", r"open .*/\.private", "was let alone, failed"
        ),
        Mutant(
            worker_that_cannot_start_has_succeeded,
            "supervisor",
            "EMFILE",
            "open .*attempts/1/exit.slot$",
            "false success",
        ),
        Mutant(
            lock_error_is_free, "launcher", "ENOLCK", "flock .*supervisor.lock", "more than one supervisor"
        ),
        Mutant(
            supervisor_that_cannot_start_is_an_end,
            "launcher",
            "EAGAIN",
            "posix_spawn",
            "was let alone, failed",
        ),
    )
}
