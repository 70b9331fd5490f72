"""File locks (flock) that prove which process is alive. The kernel releases a lock when the last process that has
the file open ends. PIDs are reused, and no heartbeat timeout suits every machine."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from kgops.jobs.files import NotAFile, open_regular

_RETRY_S = 0.05  # longer than a check of a lock takes, far shorter than a lock is held


def take(path: Path, *, patience_s: float = _RETRY_S) -> int | None:
    """Takes the lock: the open file that holds it, or None if another process does. Close it to release.

    NotAFile if the path is not a file; any other OSError says nothing about who holds the lock.
    """
    deadline = time.monotonic() + patience_s
    while True:
        fd = open_regular(path, os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have been removed since we opened it: then the lock protects nothing.
            if _is_at(fd, path):
                return fd
        except BlockingIOError:
            # It may only be a check (is_held), over in microseconds.
            if time.monotonic() > deadline:
                os.close(fd)
                return None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        time.sleep(0.002)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock; checks do not block each other. False if the path is not a file."""
    try:
        fd = open_regular(path)
    except (FileNotFoundError, NotADirectoryError, NotAFile):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        return False
