"""Locks prove who is alive. A lock belongs to an open file and goes with the last process that has it open;
PIDs are reused and heartbeats need a timeout that is always wrong for somebody."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from kgops.jobs.files import NotAFile, open_regular

_RETRY_S = 0.05  # longer than another process looks at a lock, far shorter than anybody holds one


def take(path: Path, *, patience_s: float = _RETRY_S) -> int | None:
    """An open file that holds the lock, or None where somebody else does. Close it to let go.

    NotAFile where something else stands there; any other OSError says nothing about who holds the lock.
    """
    deadline = time.monotonic() + patience_s
    while True:
        fd = open_regular(path, os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Somebody may have removed the file since we opened it: a lock that no path leads to protects nothing.
            if _is_at(fd, path):
                return fd
        except BlockingIOError:
            # It may only be somebody who looks (see is_held) and is gone in microseconds.
            if time.monotonic() > deadline:
                os.close(fd)
                return None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        time.sleep(0.002)


def is_held(path: Path) -> bool:
    """Whether anybody holds the lock; lookers do not hinder each other. What is no file is held by nobody."""
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
