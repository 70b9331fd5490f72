"""Index of a log of any length by line number: sparse marks in constant memory, built block by block."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from kgops.jobs.files import open_regular
from kgops.present.log_lines import LONGEST, shown
from kgops.supervisor.log_patterns import first_kept

Change = Literal["same", "grown", "replaced"]

PIECE = 8 << 20  # bytes that one step reads: a few milliseconds
_STRIDE = 1 << 17
_MOST_MARKS = 8192
_BLOCK = 1 << 18
_PROOF = 64  # bytes compared to detect that the file was replaced


class LogIndex:
    """Line numbers begin with 0; an unfinished last line counts.

    `lines` returns only lines that `advance` has read so far; `tail` needs no index. Each call opens the
    file: it may be moved, truncated or replaced at any time, and `refresh` reports that.
    """

    def __init__(self, path: Path, *, stride: int = _STRIDE, most_marks: int = _MOST_MARKS) -> None:
        self.path = path
        self._first_stride, self._most_marks = stride, most_marks
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._stride = self._first_stride
        self._counts = array("q", [0])  # line feeds between the base and each multiple of the stride
        self.feeds = 0
        self._ends_line = True
        self._head = self._last = b""
        self._identity: tuple[int, int] | None = None
        self.base = self.end = self.size = 0
        with reading(self.path) as fd:
            if fd is not None:
                status = os.fstat(fd)
                self._identity = (status.st_dev, status.st_ino)
                self.size = status.st_size
                # A trimmed log begins with a hole in the file.
                self.base = self.end = first_kept(fd) if status.st_size else 0

    @property
    def count(self) -> int:
        """Lines counted so far: all lines once `complete`."""
        return self.feeds + (not self._ends_line)

    @property
    def complete(self) -> bool:
        return self.end >= self.size

    def advance(self, at_most: int = PIECE) -> bool:
        """Reads about `at_most` bytes more; False once all is read."""
        with reading(self.path) as fd:
            while fd is not None and at_most > 0 and self.end < self.size:
                done = self._count_on(fd)
                if not done:
                    self.size = self.end  # truncated just now
                at_most -= done
        return not self.complete

    def _count_on(self, fd: int) -> int:
        """Counts line feeds up to the next mark, only those within the bytes read."""
        upto = self.base + len(self._counts) * self._stride
        block = os.pread(fd, min(upto, self.size) - self.end, self.end)
        if not block:
            return 0
        if len(self._head) < _PROOF:
            self._head = (self._head + block)[:_PROOF]
        self._last = (self._last + block[-_PROOF:])[-_PROOF:]
        self.feeds += block.count(b"\n")
        self._ends_line = block.endswith(b"\n")
        self.end += len(block)
        if self.end == upto:
            self._counts.append(self.feeds)
            if len(self._counts) > self._most_marks:
                self._counts = self._counts[::2]
                self._stride *= 2
        return len(block)

    def refresh(self) -> Change:
        """Checks the file again. "replaced": the file is another one, and the index starts over."""
        with reading(self.path) as fd:
            if fd is None:
                same = self._identity is None
                size = 0
            else:
                size = os.fstat(fd).st_size
                same = self._is_the_same(fd, size)
        if not same:
            self._begin_anew()
            return "replaced"
        grown = size > self.size
        self.size = size
        return "grown" if grown else "same"

    def _is_the_same(self, fd: int, size: int) -> bool:
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != self._identity or size < self.size:
            return False
        if self.end > self.base and first_kept(fd) > self.base:
            return False  # the log was trimmed
        head = os.pread(fd, len(self._head), self.base)
        last = os.pread(fd, len(self._last), self.end - len(self._last))
        return head == self._head and last == self._last

    def lines(self, first: int, count: int) -> list[str]:
        """Lines from `first` on, cleaned for display; fewer at the end."""
        out: list[str] = []
        if first < 0 or first >= self.count:
            return out
        with reading(self.path) as fd:
            if fd is None:
                return out
            for raw in self.raw_lines(fd, self.offset_of(fd, first)):
                if len(out) == count:
                    break
                out.append(shown(raw))
        return out

    def tail(self, count: int, *, at_most: int = 1 << 20) -> list[str]:
        """The last lines of the file, indexed or not, within its last `at_most` bytes."""
        with reading(self.path) as fd:
            if fd is None:
                return []
            end = os.fstat(fd).st_size
            start = max(first_kept(fd), end - at_most) if end else 0
            lines = os.pread(fd, end - start, start).split(b"\n")
        if not lines[-1]:
            lines.pop()
        return [shown(raw) for raw in lines[max(len(lines) - count, 0) :]]

    def offset_of(self, fd: int, line: int) -> int:
        """The byte offset of a line; the end for the line after the last."""
        if line <= 0:
            return self.base
        if line > self.feeds:
            return self.end
        mark = bisect_left(self._counts, line) - 1
        at = self.base + mark * self._stride
        missing = line - self._counts[mark]
        while missing and (block := os.pread(fd, min(_BLOCK, self.end - at), at)):
            feeds = block.count(b"\n")
            if feeds < missing:
                missing -= feeds
                at += len(block)
                continue
            feed = -1
            for _ in range(missing):
                feed = block.find(b"\n", feed + 1)
            return at + feed + 1
        return self.end

    def raw_lines(self, fd: int, at: int) -> Iterator[bytes]:
        """Lines from an offset on, without line feeds; very long ones are shortened to their beginning and end."""
        carried = b""
        while at < self.end and (block := os.pread(fd, min(_BLOCK, self.end - at), at)):
            at += len(block)
            first, *rest = block.split(b"\n")
            carried += first
            for following in rest:
                yield carried
                carried = following
            if len(carried) > 4 * LONGEST:
                carried = carried[:LONGEST] + carried[-LONGEST:]
        if carried:
            yield carried


@contextmanager
def reading(path: Path) -> Iterator[int | None]:
    """An open regular file, or None where there is none. Links and pipes, which a worker may have put there, are
    refused: a pipe would block."""
    try:
        fd = open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)
