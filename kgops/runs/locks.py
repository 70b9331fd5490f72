"""Locks prove who is alive. A lock belongs to an open file and goes with the last process that has it open;
PIDs are reused and heartbeats need a timeout that is always wrong for somebody."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_PATIENCE_S = 0.05  # longer than another process looks at a lock, far shorter than anybody holds one


def take(path: Path) -> int | None:
    """An open file that holds the lock, or None where somebody else does. Close it to let go."""
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            # It may only be somebody who looks (see is_held) and is gone in microseconds.
            if time.monotonic() > deadline:
                os.close(fd)
                return None
            time.sleep(0.002)


def is_held(path: Path) -> bool:
    """Whether anybody holds the lock; lookers do not hinder each other."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
