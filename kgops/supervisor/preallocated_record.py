"""Slots: small files with preallocated disk space, so that they can be written on a full disk.

A run has one for its end and one for a stop request; an attempt has one for its worker's exit.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kgops.jobs.files import ABSENT, NotAFile, open_regular, read_regular, set_aside

SIZE = 4096
_MAX_REASON = 1000
_REASON_BYTES = SIZE - 512  # for the reason: the rest of an ending is far shorter


@dataclass(frozen=True, slots=True)
class Ending:
    """A run's decided end."""

    state: str
    reason: str | None
    exit_code: int | None
    attempt: int
    ended_at: float


def reserve(path: Path) -> None:
    """Allocates an empty slot; clears an existing one."""
    fd = _open(path)
    try:
        os.posix_fallocate(fd, 0, SIZE)
        os.pwrite(fd, bytes(SIZE), 0)
        os.fsync(fd)
    finally:
        os.close(fd)


def fill(path: Path, table: dict[str, Any]) -> None:
    """Writes in place, needing no new block or name. A half-written slot reads as empty."""
    body = json.dumps(table).encode()
    content = b"kgops %08x %06d\n" % (zlib.crc32(body), len(body)) + body
    if len(content) > SIZE:
        raise ValueError(f"{len(content)} bytes do not fit a slot")
    fd = _open(path)
    try:
        os.pwrite(fd, content.ljust(SIZE, b"\0"), 0)
        os.fsync(fd)
    finally:
        os.close(fd)


def read(path: Path) -> dict[str, Any] | None:
    """The slot's content; None if empty, half written or missing."""
    try:
        head, _, rest = read_regular(path, at_most=SIZE).partition(b"\n")
        name, checksum, length = head.split()
        body = rest[: int(length)]
        if name == b"kgops" and zlib.crc32(body) == int(checksum, 16):
            table = json.loads(body)
            return table if isinstance(table, dict) else None
    except (*ABSENT, ValueError, RecursionError):
        pass
    return None


def write_ending(path: Path, ending: Ending) -> None:
    """Writes the ending; shortens the reason to fit: in JSON a character may take up to twelve bytes."""
    reason = ending.reason[:_MAX_REASON] if ending.reason else None
    while reason and len(json.dumps(reason)) > _REASON_BYTES:
        reason = reason[: len(reason) * 3 // 4]
    fill(path, {**asdict(ending), "reason": reason})


def read_ending(path: Path) -> Ending | None:
    table = read(path)
    try:
        return Ending(**table) if table else None
    except TypeError:
        return None


def _open(path: Path) -> int:
    try:
        return open_regular(path, os.O_RDWR | os.O_CREAT)
    except NotAFile:
        set_aside(path)
        return open_regular(path, os.O_RDWR | os.O_CREAT)
