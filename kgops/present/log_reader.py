"""Pages of a log of any length for the log viewer, while lines are indexed, filtered by level and searched in small
steps."""

from __future__ import annotations

import os
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, count
from operator import add
from pathlib import Path
from typing import NamedTuple

from kgops.present.log_lines import LEVELS, LONGEST, Level, LineFilter, level_of, newest_lines, reading, shown
from kgops.supervisor.worker_reports import first_kept

ALL: frozenset[Level] = frozenset(LEVELS)
_LOOK_S = 0.03  # indexing and searching per call
_NEWEST_S = 0.01  # searching for the newest lines of a level
_FIRST_S = 0.005  # of the first call, which the viewer waits for
_BLOCK = 2 * LONGEST  # bytes of one step: less than a millisecond, mostly
_PROOF = 64  # bytes compared to detect that the file was replaced
_LONGEST = 1 << 13  # characters of a line in a page: many screens wide
_PLAIN = bytes(range(0x20, 0x7F)) + b"\n"  # what display leaves as it is


class Log:
    """Where each line of a file starts. Line numbers begin with 0; an unfinished last line counts.

    Each call opens the file: it may be moved, truncated or replaced at any time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._head = self._last = b""
        self._identity: tuple[int, int] | None = None
        self.size = base = 0
        with reading(path) as fd:
            if fd is not None:
                status = os.fstat(fd)
                self._identity, self.size = (status.st_dev, status.st_ino), status.st_size
                base = first_kept(fd) if status.st_size else 0  # a trimmed log begins with a hole in the file
        self.starts, self.end = array("q", [base]), base

    @property
    def finished(self) -> int:
        """Lines so far that end in a line feed."""
        return len(self.starts) - 1

    @property
    def count(self) -> int:
        """Lines so far: all lines once `complete`."""
        return self.finished + (self.end > self.starts[-1])

    @property
    def complete(self) -> bool:
        return self.end >= self.size

    @property
    def share(self) -> float:
        return (self.end - self.starts[0]) / max(self.size - self.starts[0], 1)

    def advance(self) -> None:
        """Reads a block more."""
        with reading(self.path) as fd:
            block = b"" if fd is None else os.pread(fd, min(_BLOCK, self.size - self.end), self.end)
        if not block:
            self.size = self.end  # truncated just now
        self._head = (self._head + block[:_PROOF])[:_PROOF]
        self._last = (self._last + block[-_PROOF:])[-_PROOF:]
        lengths = accumulate(map(len, block.split(b"\n")[:-1]))
        self.starts.extend(map(add, lengths, count(self.end + 1)))
        self.end += len(block)

    def refresh(self) -> bool:
        """Takes the size again; False where the file is another one, and needs another index."""
        with reading(self.path) as fd:
            if fd is None:
                return self._identity is None
            size = os.fstat(fd).st_size
            if not self._is_the_same(fd, size):
                return False
        self.size = size
        return True

    def _is_the_same(self, fd: int, size: int) -> bool:
        status, base = os.fstat(fd), self.starts[0]
        if (status.st_dev, status.st_ino) != self._identity or size < self.size:
            return False
        if self.end > base and first_kept(fd) > base:
            return False  # the log was trimmed
        last = os.pread(fd, len(self._last), self.end - len(self._last))
        return os.pread(fd, len(self._head), base) == self._head and last == self._last

    def start(self, line: int) -> int:
        """The end for the line after the last."""
        return self.starts[line] if line <= self.finished else self.end

    def texts(self, lines: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Lines of the index with their numbers, cleaned for display."""
        with reading(self.path) as fd:
            for line in lines:
                if fd is not None:
                    yield line, shown(self.raw(fd, line))

    def raw(self, fd: int, line: int) -> bytes:
        """A line without its line feed; a very long one is shortened to its beginning and end."""
        begin, end = self.start(line), self.start(line + 1) - (line < self.finished)
        if end - begin <= 2 * LONGEST:
            return os.pread(fd, end - begin, begin)
        return os.pread(fd, LONGEST, begin) + os.pread(fd, LONGEST, end - LONGEST)

    def block(self, part: range, *, forward: bool = True) -> range:
        """The first or last lines of a part, as many as make a step of a search; at least one."""
        begin, end = self.start(part.start), self.start(part.stop)
        if end - begin <= _BLOCK:
            return part
        if forward:
            behind = bisect_right(self.starts, begin + _BLOCK, part.start) - 1
            return range(part.start, max(behind, part.start + 1))
        first = bisect_left(self.starts, end - _BLOCK, part.start, part.stop)
        return range(min(first, part.stop - 1), part.stop)


class LogSearch:
    """The lines that a filter finds: in any block, and step by step from the first line on in `found`."""

    def __init__(self, log: Log, wanted: LineFilter) -> None:
        self._log, self._wanted = log, wanted
        self._test, self._needles = wanted.test(), wanted.needles()
        self.found = array("q")
        self._next = self._end = 0  # the first line not searched yet, and the end of the log when all were

    @property
    def share(self) -> float:
        return self._next / max(self._log.finished, 1)

    def advance(self) -> bool:
        """Searches a block more; False once all lines of the index were searched."""
        log = self._log
        if self._end == log.end:
            return False
        if self.found and self.found[-1] >= self._next:
            self.found.pop()  # that line was unfinished
        lines = log.block(range(self._next, log.count))
        self.found.extend(self.among(lines))
        self._next = min(lines.stop, log.finished)
        self._end = log.end if lines.stop == log.count else 0
        return True

    def among(self, lines: range) -> list[int]:
        """Which lines of a block match."""
        log, first = self._log, lines.start
        begin, end = log.start(first), log.start(lines.stop)
        with reading(log.path) as fd:
            if fd is None or not lines:
                return []
            if end - begin > _BLOCK:
                return [first] if self._test(shown(log.raw(fd, first))) else []
            block = os.pread(fd, end - begin, begin)
        # Ignoring case, a pattern's s also matches ſ, and k the Kelvin sign.
        is_unsure = self._wanted.regex and self._wanted.ignore_case and not block.isascii()
        if self._needles is None or is_unsure:
            return [line for line, text in enumerate(_texts(block), first) if self._test(text)]
        candidates: set[int] = set()
        folded = block.lower() if self._wanted.folds else block
        for needle in self._needles:
            at = folded.find(needle)
            while at >= 0:
                line = bisect_right(log.starts, begin + at, first, lines.stop) - 1
                candidates.add(line)
                at = folded.find(needle, log.start(line + 1) - begin)
        spans = ((line, log.start(line) - begin, log.start(line + 1) - begin) for line in sorted(candidates))
        return [line for line, a, b in spans if self._test(shown(block[a:b].removesuffix(b"\n")))]


def _texts(block: bytes) -> Iterable[str]:
    lines = block.removesuffix(b"\n").split(b"\n")
    if block.translate(None, _PLAIN) or max(map(len, lines)) > LONGEST:
        return map(shown, lines)
    return block.decode("ascii").removesuffix("\n").split("\n")


class Seek(NamedTuple):
    """A jump to a line: the line itself, or the nearest, next or previous match from there."""

    line: int
    wanted: LineFilter | None = None
    # 1: search down, then from the start; -1: up, then from the end; 0: from here down, then up
    step: int = 0
    time: int = 0  # distinguishes repeated jumps


class SeekResult(NamedTuple):
    """`row` is the line's index among the shown rows; None: there is no such line."""

    seek: Seek
    row: int | None
    line: int = 0
    around: bool = False  # the search wrapped around the end or the beginning


class PageRequest(NamedTuple):
    """The visible part: `height` rows from `top` on, or the last ones."""

    top: int | None = None
    height: int = 24
    levels: frozenset[Level] = ALL
    seek: Seek | None = None


class Line(NamedTuple):
    number: int | None  # None until lines are counted
    text: str
    level: Level


class Page(NamedTuple):
    """The requested rows and some around them. `rows` is the total; until lines are counted, only the newest."""

    levels: frozenset[Level] = ALL
    rows: int = 0
    first: int = 0  # the row of `lines[0]`
    lines: tuple[Line, ...] = ()
    counted: float = 0.0
    numbered: bool = False
    file: int = 0  # changes when the file was replaced or truncated
    sought: SeekResult | None = None
    busy: bool = False  # indexing or searching is not finished

    def row(self, row: int) -> Line | None:
        """One row of the page; None outside it."""
        at = row - self.first
        return self.lines[at] if 0 <= at < len(self.lines) else None


class LogReader:
    """Reads a bounded part of the file per call. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path, self._file, self._look_s = path, 0, _FIRST_S
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._log = Log(self._path)
        self._numbered = False  # all lines were counted and filtered once
        self._narrowed: LogSearch | None = None  # to some levels; None: all lines are shown
        self._levels = ALL
        self._seek: Seek | None = None
        self._sought: SeekResult | None = None
        self._seeking: Iterator[SeekResult | None] | None = None

    def look(self, asked: PageRequest) -> Page:
        """The current page; `busy` where another call would add to it."""
        if not self._log.refresh():
            self._file += 1
            self._begin_anew()
            self._seek = asked.seek  # a jump in the old file is dropped
        if asked.levels != self._levels:
            self._levels, self._numbered = asked.levels, False
            wanted = LineFilter(levels=asked.levels)
            self._narrowed = None if asked.levels == ALL else LogSearch(self._log, wanted)
        if asked.seek != self._seek:
            self._seek, self._sought = asked.seek, None
            self._seeking = self._steps(asked.seek) if asked.seek is not None else None
        sought_before, until, busy = self._sought, time.monotonic() + self._look_s, True
        self._look_s = _LOOK_S
        while busy and time.monotonic() < until:
            busy = self._work()
        if self._sought is not sought_before and self._sought is not None and self._sought.row is not None:
            asked = asked._replace(top=self._sought.row)  # the viewer will scroll there
        return self._page(asked, busy)

    def _work(self) -> bool:
        """One step of some milliseconds: indexing, then filtering, then searching."""
        if not self._log.complete:
            self._log.advance()
            return True
        if self._narrowed is not None and self._narrowed.advance():
            return True
        self._numbered = True
        if self._seeking is None:
            return False
        self._sought = next(self._seeking)
        if self._sought is not None:
            self._seeking = None
        return True

    def _steps(self, seek: Seek) -> Iterator[SeekResult | None]:
        """None until the line is found."""
        if seek.wanted is None:
            yield self._reached(seek, seek.line)
            return
        search = LogSearch(self._log, replace(seek.wanted, levels=seek.wanted.levels & self._levels))
        for lines, forward, around in _blocks(self._log, seek):
            if found := search.among(lines):
                yield self._reached(seek, found[0] if forward else found[-1], around)
                return
            yield None
        yield SeekResult(seek, None)

    def _reached(self, seek: Seek, line: int, around: bool = False) -> SeekResult:
        row = min(bisect_left(self._rows, line), len(self._rows) - 1) if self._rows else None
        return SeekResult(seek, row, line, around)

    @property
    def _rows(self) -> Sequence[int]:
        return range(self._log.count) if self._narrowed is None else self._narrowed.found

    def _page(self, asked: PageRequest, busy: bool) -> Page:
        counted = self._log.share if self._narrowed is None else self._log.share * self._narrowed.share
        page = Page(asked.levels, counted=counted, file=self._file, sought=self._sought, busy=busy)
        if not self._numbered:
            newest = self._newest(2 * asked.height)
            return page._replace(rows=len(newest), lines=newest)
        rows = self._rows
        top = len(rows) - asked.height if asked.top is None else asked.top
        first = max(top - 2 * asked.height, 0)
        lines = self._lines(rows[first : first + 5 * asked.height])
        return page._replace(rows=len(rows), first=first, lines=lines, numbered=True)

    def _newest(self, count: int) -> tuple[Line, ...]:
        """The last lines before all are counted, as far back as a few milliseconds reach."""
        if self._narrowed is None:
            return tuple(_line(None, text) for text in newest_lines(self._path, count))
        found: list[int] = []
        upto, until = self._log.count if self._log.complete else 0, time.monotonic() + _NEWEST_S
        while upto and len(found) < count and time.monotonic() < until:
            lines = self._log.block(range(upto), forward=False)
            found, upto = self._narrowed.among(lines) + found, lines.start
        return self._lines(found[max(len(found) - count, 0) :])

    def _lines(self, numbers: Iterable[int]) -> tuple[Line, ...]:
        return tuple(_line(number, text) for number, text in self._log.texts(numbers))


def _blocks(log: Log, seek: Seek) -> Iterator[tuple[range, bool, bool]]:
    """The blocks to search in order, whether forward, and whether the search wrapped around."""
    middle = min(max(seek.line + (seek.step > 0), 0), log.count)
    below, above, wraps = range(middle, log.count), range(middle), seek.step > 0
    parts = ((below, True, False), (above, wraps, wraps))
    if seek.step < 0:
        parts = ((above, False, False), (below, False, True))
    for part, forward, around in parts:
        while part:
            block = log.block(part, forward=forward)
            yield block, forward, around
            part = range(block.stop, part.stop) if forward else range(part.start, block.start)


def _line(number: int | None, text: str) -> Line:
    return Line(number, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", level_of(text))
