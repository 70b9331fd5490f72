"""A log as a screen asks for it: a page from anywhere, while lines are counted, narrowed and searched on the side."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kgops.views.log_hits import LogHits
from kgops.views.log_index import LogIndex
from kgops.views.log_lines import LEVELS, Level, Wanted, level_of
from kgops.views.log_search import LogSearch

__all__ = ["ALL", "Asked", "Line", "LogReader", "Page", "Seek", "Sought"]

ALL: frozenset[Level] = frozenset(LEVELS)
_LOOK_S = 0.03  # of counting and searching, before an answer comes back
_FIRST_S = 0.005  # before the first one, which somebody waits for
_PIECE = 1 << 21  # bytes counted in one step: a millisecond or two
_LONGEST = 1 << 13  # characters of a line that a page has: many screens wide


class Seek(NamedTuple):
    """A wish to be brought to a line: that line itself, or the nearest, next or last wanted one from there."""

    line: int
    wanted: Wanted | None = None
    step: int = (
        0  # 1: behind it, then from the beginning; -1: before it, then from the end; 0: here, behind, before
    )
    time: int = 0  # tells wishes for the same apart


class Sought(NamedTuple):
    """`row` is its place among what is shown; None: there is no such line."""

    seek: Seek
    row: int | None
    line: int = 0
    around: bool = False  # found only beyond the end, or the beginning


class Asked(NamedTuple):
    """What somebody looks at: `height` rows from `top` on, or the last ones."""

    top: int | None = None
    height: int = 24
    levels: frozenset[Level] = ALL
    seek: Seek | None = None


class Line(NamedTuple):
    number: int | None  # None while lines are still being counted
    text: str
    level: Level


class Page(NamedTuple):
    """Rows around what was asked for. `rows` are all there are; until they are counted, only the newest."""

    levels: frozenset[Level] = ALL
    rows: int = 0
    first: int = 0  # the row that `lines` begins with
    lines: tuple[Line, ...] = ()
    counted: float = 0.0
    numbered: bool = False
    file: int = 0  # another number: another file, or one that was cut
    sought: Sought | None = None
    busy: bool = False  # there is more to do even if nothing is written and nobody asks

    def row(self, row: int) -> Line | None:
        """None where it was not read."""
        at = row - self.first
        return self.lines[at] if 0 <= at < len(self.lines) else None


class LogReader:
    """Each look reads a bounded piece of the file. For one thread at a time."""

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
        self._sought: Sought | None = None
        self._seeking: Iterator[Sought | None] | None = None

    def look(self, asked: Asked) -> Page:
        """The file as it is now; `busy` where another look would know more."""
        if self._log.refresh() == "replaced":
            self._file += 1
            self._begin_anew()
            self._seek = asked.seek  # of the old one: nobody is brought anywhere by it
        if asked.levels != self._levels:
            self._levels = asked.levels
            everything = asked.levels == ALL
            self._hits = None if everything else LogHits(self._log, Wanted(levels=asked.levels))
            self._numbered &= {ALL}
        if asked.seek != self._seek:
            self._seek, self._sought = asked.seek, None
            self._seeking = self._steps(asked.seek) if asked.seek is not None else None
        sought_before, until, busy = self._sought, time.monotonic() + self._look_s, True
        self._look_s = _LOOK_S
        while busy and time.monotonic() < until:
            busy = self._work()
        if self._sought is not sought_before and self._sought is not None and self._sought.row is not None:
            asked = asked._replace(top=self._sought.row)  # where they will look next
        return self._page(asked, busy)

    def _work(self) -> bool:
        """One step, of some milliseconds, of whatever is to be done next."""
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

    # --- bringing somebody to a line ---

    def _steps(self, seek: Seek) -> Iterator[Sought | None]:
        """None after each step that found nothing yet."""
        if seek.wanted is None:
            yield self._reached(seek, seek.line)
            return
        search = LogSearch(self._log, replace(seek.wanted, levels=seek.wanted.levels & self._levels))
        for begin, forward, around in _ways(seek, self._log.count):
            go_on: int | None = begin
            while go_on is not None and begin >= 0:
                hits, go_on = search.forward(go_on) if forward else search.backward(go_on)
                if hits:
                    yield self._reached(seek, hits[0].line, around)
                    return
                yield None
        yield Sought(seek, None)

    def _reached(self, seek: Seek, line: int, around: bool = False) -> Sought:
        row = line if self._hits is None else self._hits.place_of(line)
        return Sought(seek, row if self._rows else None, line, around)

    # --- the page ---

    @property
    def _rows(self) -> int:
        return self._log.count if self._hits is None else self._hits.count

    def _page(self, asked: Asked, busy: bool) -> Page:
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


def _ways(seek: Seek, count: int) -> list[tuple[int, bool, bool]]:
    """From which line to look, whether forward, and whether that is the other way round, one after the other."""
    if seek.step > 0:
        return [(seek.line + 1, True, False), (0, True, True)]
    if seek.step < 0:
        return [(seek.line - 1, False, False), (count - 1, False, True)]
    return [(seek.line, True, False), (seek.line - 1, False, False)]


def _line(number: int | None, text: str) -> Line:
    return Line(number, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", level_of(text))
