"""Reading a file that somebody else is writing: whole lines from an offset on, in bounded memory."""

from __future__ import annotations

import os
from pathlib import Path

CHUNK = 1 << 20  # also the longest line that is kept


def read_lines(path: Path, offset: int, *, final: bool) -> tuple[list[bytes | None], int]:
    """The next complete lines behind `offset`, about a chunk of them, and the offset behind those.

    None stands for a piece of a line too long to keep. With `final`, for a file that nobody writes any
    more, an unfinished last line counts. A carriage return ends a line too: progress bars write nothing
    else for hours. An unchanged offset means there is nothing more yet.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return [], offset
    try:
        data = os.pread(fd, CHUNK, offset)
        before = os.pread(fd, 1, offset - 1) if offset else b"\n"
    finally:
        os.close(fd)
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    if end == 0:
        if len(data) == CHUNK:
            return [None], offset + CHUNK
        if not (final and data):
            return [], offset
        end = len(data)
        lines: list[bytes | None] = [data]
    else:
        lines = list(data[:end].replace(b"\r", b"\n").split(b"\n")[:-1])
    if before not in b"\r\n":
        lines[0] = None  # the rest of a line whose beginning was too long to keep
    return lines, offset + end


def last_bytes(path: Path, count: int, *, since: int = 0) -> bytes:
    """At most `count` bytes from the end, none of them before `since`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return b""
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, count, max(since, size - count))
    finally:
        os.close(fd)
