"""Trims a worker's log to its newest part by punching holes, so offsets of readers and writers stay valid."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kgops.jobs.files import open_regular

_BLOCK = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


def keep_newest(log: Path, mib: float) -> int:
    """Frees the old part's disk blocks if the log takes more than `mib`; offsets stay.

    Returns the bytes freed: 0 if nothing had to be done or the file system cannot punch holes.
    """
    try:
        status = log.lstat()
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(status.st_mode):
        return 0
    limit = int(mib * (1 << 20))
    # Keeps half, so that this runs once per half, not at every check.
    if status.st_blocks * 512 <= limit:
        return 0
    upto = (status.st_size - limit // 2) // _BLOCK * _BLOCK
    return upto if upto > 0 and _punch(log, upto) else 0


def first_kept(fd: int) -> int:
    """Offset of the first byte still there; the file size if there is none."""
    try:
        return os.lseek(fd, 0, os.SEEK_DATA)
    except OSError:  # ENXIO: nothing but a hole
        return os.fstat(fd).st_size


def _punch(log: Path, length: int) -> bool:
    import ctypes  # here: 1.5 MB that most supervisors never need

    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    fd = open_regular(log, os.O_WRONLY)
    try:
        done: bool = fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, 0, length) == 0
        return done
    finally:
        os.close(fd)
