"""Reads whole lines of a growing file from an offset, in bounded memory."""

from __future__ import annotations

import os
from pathlib import Path

from kgops.jobs.files import ABSENT, NotAFile, open_regular

CHUNK = 1 << 20  # also the longest line kept


def read_lines(path: Path, offset: int, *, final: bool) -> tuple[list[bytes | None], int]:
    """The next complete lines behind `offset`, about a chunk of them, and the offset behind those.

    None replaces part of a line too long to keep. With `final`, for a finished file, an unfinished last line
    counts. A carriage return ends a line too: progress bars write nothing else for hours. An unchanged offset:
    nothing new yet, or no such file (`trouble` says what is there instead).
    """
    try:
        data, before = _read(path, offset)
    except ABSENT:
        return [], offset
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    if end == 0:
        if len(data) == CHUNK:
            return [None], offset + CHUNK
        if not (final and data):
            return [], offset
        end = len(data)
        lines: list[bytes | None] = [data]
    else:
        lines = list(data[:end].replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1])
        if before == b"\r" and data.startswith(b"\n"):
            del lines[0]  # second half of a split line end
    if before not in b"\r\n":
        lines[0] = None  # the rest of a line whose beginning was too long to keep
    return lines, offset + end


def trouble(path: Path) -> str | None:
    """Why the path cannot be read as a file; None if it is a file or missing."""
    try:
        _read(path, 0)
    except NotAFile as error:
        return error.strerror
    except ABSENT:
        return None
    return None


def last_bytes(path: Path, count: int, *, since: int = 0) -> bytes:
    """At most `count` bytes from the end, none before `since`; empty if unreadable."""
    try:
        fd = open_regular(path)
        try:
            size = os.fstat(fd).st_size
            return os.pread(fd, count, max(since, size - count))
        finally:
            os.close(fd)
    except ABSENT:
        return b""


def _read(path: Path, offset: int) -> tuple[bytes, bytes]:
    """A chunk from `offset` on, and the byte before it."""
    fd = open_regular(path)
    try:
        return os.pread(fd, CHUNK, offset), os.pread(fd, 1, offset - 1) if offset else b"\n"
    finally:
        os.close(fd)
