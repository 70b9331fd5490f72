"""Reports of a worker: whole lines of its event file, as events."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kgops.jobs.data_digests import text_table
from kgops.jobs.events import DATA, is_metric
from kgops.jobs.files import ABSENT, NotAFile, open_regular
from storage import reports
from storage.database import Connection
from storage.influences import Influence, TestTriple

CHUNK = 1 << 20  # also the longest line kept


def data_digests(conn: Connection, run: int) -> dict[str, str]:
    """Of the data that the run's newest attempt read; empty where no worker reported any."""
    reported = reports.events(conn, run, kinds=(DATA,))
    return text_table(reported[-1].body) if reported else {}


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


_MAX_INFLUENCES = 1000  # influences of one test triple; the run's files have the rest


def test_triple_from(fields: dict[str, Any]) -> TestTriple | None:
    test, triple = _int_or_none(fields["test"]), fields["triple"]
    if test is None or not _are_texts(triple, 3):
        return None
    head, relation, tail = triple
    found = [_influence(test, row) for row in (fields.get("influences") or [])[:_MAX_INFLUENCES]]
    if None in found:
        return None
    names = (fields.get("names") or {}).items()
    return TestTriple(
        test,
        head,
        relation,
        tail,
        candidates=_int_or_none(fields.get("candidates")),
        trouble=fields.get("trouble"),
        found=tuple(one for one in found if one is not None),
        names={label: name for label, name in names if isinstance(name, str)},
    )


def _influence(test: int, row: Any) -> Influence | None:
    if not isinstance(row, list) or len(row) != 5 or not _are_texts(row[1:4], 3):
        return None
    rank, score = row[0], row[4]
    if not is_metric(rank) or not is_metric(score) or not _int_or_none(abs(rank)):
        return None
    return Influence(test, int(rank), row[1], row[2], row[3], float(score))


def _int_or_none(value: float | None) -> int | None:
    """None also if too large for a column."""
    return None if value is None or not 0 <= value < 1 << 53 else int(value)


def _are_texts(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(isinstance(one, str) for one in value)
