"""Pages of a log for the log viewer, while lines are indexed, filtered by level and searched in small steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kgops.present.log_index import LogIndex
from kgops.present.log_lines import LEVELS, Level, LineFilter, level_of
from kgops.present.log_search import LogHits, LogSearch

ALL: frozenset[Level] = frozenset(LEVELS)
_LOOK_S = 0.03  # indexing and searching per call
_FIRST_S = 0.005  # of the first call, which the viewer waits for
_PIECE = 1 << 21  # bytes indexed in one step: a millisecond or two
_LONGEST = 1 << 13  # characters of a line in a page: many screens wide


class Seek(NamedTuple):
    """A jump to a line: the line itself, or the nearest, next or previous match from there."""

    line: int
    wanted: LineFilter | None = None
    step: int = (
        0  # 1: search down, then from the start; -1: up, then from the end; 0: from here down, then up
    )
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
        self._log = LogIndex(path)
        self._file = 0
        self._look_s = _FIRST_S
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._numbered: set[frozenset[Level]] = set()
        self._hits: LogHits | None = None
        self._levels = ALL
        self._seek: Seek | None = None
        self._sought: SeekResult | None = None
        self._seeking: Iterator[SeekResult | None] | None = None

    def look(self, asked: PageRequest) -> Page:
        """The current page; `busy` where another call would add to it."""
        if self._log.refresh() == "replaced":
            self._file += 1
            self._begin_anew()
            self._seek = asked.seek  # a jump in the old file is dropped
        if asked.levels != self._levels:
            self._levels = asked.levels
            everything = asked.levels == ALL
            self._hits = None if everything else LogHits(self._log, LineFilter(levels=asked.levels))
            self._numbered &= {ALL}
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
            self._log.advance(_PIECE)
            return True
        if self._hits is not None and self._hits.advance():
            return True
        self._numbered.add(self._levels)
        if self._seeking is None:
            return False
        self._sought = next(self._seeking)
        if self._sought is not None:
            self._seeking = None
        return True

    # --- jumps ---

    def _steps(self, seek: Seek) -> Iterator[SeekResult | None]:
        """Search steps: None until a match is found."""
        if seek.wanted is None:
            yield self._reached(seek, seek.line)
            return
        search = LogSearch(self._log, replace(seek.wanted, levels=seek.wanted.levels & self._levels))
        for begin, forward, around in _searches(seek, self._log.count):
            next_line: int | None = begin
            while next_line is not None and begin >= 0:
                hits, next_line = search.forward(next_line) if forward else search.backward(next_line)
                if hits:
                    yield self._reached(seek, hits[0].line, around)
                    return
                yield None
        yield SeekResult(seek, None)

    def _reached(self, seek: Seek, line: int, around: bool = False) -> SeekResult:
        row = line if self._hits is None else self._hits.index_of(line)
        return SeekResult(seek, row if self._rows else None, line, around)

    # --- the page ---

    @property
    def _rows(self) -> int:
        return self._log.count if self._hits is None else self._hits.count

    def _page(self, asked: PageRequest, busy: bool) -> Page:
        counted = (self._log.end - self._log.base) / max(self._log.size - self._log.base, 1)
        if self._hits is not None:
            counted *= self._hits.share
        page = Page(asked.levels, counted=counted, file=self._file, sought=self._sought, busy=busy)
        if self._levels not in self._numbered:
            newest = self._newest(2 * asked.height)
            return page._replace(rows=len(newest), lines=newest)
        rows = self._rows
        top = rows - asked.height if asked.top is None else asked.top
        first = max(top - 2 * asked.height, 0)
        return page._replace(
            rows=rows, first=first, lines=self._lines(first, 5 * asked.height), numbered=True
        )

    def _newest(self, count: int) -> tuple[Line, ...]:
        if self._hits is None:
            return tuple(_line(None, text) for text in self._log.tail(count))
        if not self._log.complete:
            return ()
        return tuple(_line(hit.line, hit.text) for hit in self._hits.newest(count))

    def _lines(self, first: int, count: int) -> tuple[Line, ...]:
        if self._hits is not None:
            return tuple(_line(hit.line, hit.text) for hit in self._hits.lines(first, count))
        return tuple(_line(n, text) for n, text in enumerate(self._log.lines(first, count), first))


def _searches(seek: Seek, count: int) -> list[tuple[int, bool, bool]]:
    """The searches to make in order: start line, whether forward, and whether it wrapped around."""
    if seek.step > 0:
        return [(seek.line + 1, True, False), (0, True, True)]
    if seek.step < 0:
        return [(seek.line - 1, False, False), (count - 1, False, True)]
    return [(seek.line, True, False), (seek.line - 1, False, False)]


def _line(number: int | None, text: str) -> Line:
    return Line(number, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", level_of(text))
