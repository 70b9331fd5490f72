"""Search in logs of any size, and the lines that it finds."""

from __future__ import annotations

import os
import re
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kgops.present.log_index import LogIndex, reading
from kgops.present.log_lines import LONGEST, LineFilter, shown

_MOST_MARKS = 8192
_MANY = 4096  # matches of one step


class LogHits:
    """Counts matching lines step by step from the first line on; counted matches can be read by index.

    Keeps the line number of every match up to `most_marks`; beyond that, of every second, fourth, … match.
    """

    def __init__(self, log: LogIndex, wanted: LineFilter, *, most_marks: int = _MOST_MARKS) -> None:
        self.log, self._most_marks = log, most_marks
        self._search, self._test = LogSearch(log, wanted), wanted.test()
        self._marks, self._stride = array("q"), 1
        self._finished = 0  # matches among the lines that end in a line feed
        self._next = 0  # the first line not searched yet
        self._ends_so: Hit | None = None  # the unfinished last line, where it matches as it is now

    @property
    def count(self) -> int:
        return self._finished + (self._ends_so is not None)

    @property
    def complete(self) -> bool:
        """Whether all lines known to the index were searched."""
        return self._next >= self.log.feeds

    @property
    def share(self) -> float:
        return 1.0 if self.complete else self._next / self.log.feeds

    def advance(self) -> bool:
        """Searches on for some milliseconds; False once all lines known to the index were searched."""
        upto = self.log.feeds
        if self._next < upto:
            result = self._search.forward(self._next, _MANY)
            for hit in result.hits:
                if hit.line < upto:
                    self._keep(hit.line)
            self._next = upto if result.next_line is None else min(result.next_line, upto)
        self._look_at_end()
        return not self.complete

    def _keep(self, line: int) -> None:
        if self._finished % self._stride == 0:
            self._marks.append(line)
            if len(self._marks) > self._most_marks:
                self._marks = self._marks[::2]
                self._stride *= 2
        self._finished += 1

    def _look_at_end(self) -> None:
        self._ends_so = None
        if self.complete and self.log.count > self.log.feeds:
            for text in self.log.lines(self.log.feeds, 1):
                self._ends_so = Hit(self.log.feeds, text) if self._test(text) else None

    def newest(self, count: int) -> list[Hit]:
        """The last matches, counted or not, as far back as a search of some milliseconds reaches."""
        return [*reversed(self._search.backward(self.log.count - 1, count).hits)]

    def lines(self, first: int, count: int) -> list[Hit]:
        """Matches from index `first` on; fewer at the end."""
        first = max(first, 0)
        last = min(first + count, self._finished)
        hits = self._read(first, last) if first < last else []
        if self._ends_so is not None and first <= self._finished < first + count:
            hits.append(self._ends_so)
        return hits

    def _read(self, first: int, last: int) -> list[Hit]:
        if self._stride == 1:  # the matches may be far apart
            marks = self._marks[first:last]
            return [Hit(line, text) for line in marks for text in self.log.lines(line, 1)]
        mark, offset = divmod(first, self._stride)
        return self._from(self._marks[mark], offset + last - first)[offset:]

    def _from(self, line: int, count: int) -> list[Hit]:
        hits: list[Hit] = []
        next_line: int | None = line
        while next_line is not None and len(hits) < count:
            batch, next_line = self._search.forward(next_line, count - len(hits))
            hits += batch
        return hits

    def index_of(self, line: int) -> int:
        """The index of the first match from a line on; of the last match where there is none."""
        if self._stride == 1:
            index = bisect_left(self._marks, line)
        else:
            mark = max(bisect_right(self._marks, line) - 1, 0)
            near = self._from(self._marks[mark], self._stride)
            index = mark * self._stride + bisect_left(near, line, key=lambda hit: hit.line)
        return max(min(index, self.count - 1), 0)


_CALL_S = 0.01  # after which a call returns
_BLOCK = 1 << 18
_SLOW_BLOCK = 1 << 16  # where every line has to be tested
_PLAIN = re.compile(rb"[^\n\x20-\x7e]")  # bytes that display changes


class Hit(NamedTuple):
    line: int
    text: str


class SearchResult(NamedTuple):
    """`next_line` is where the next call continues; None: the search is finished in that direction."""

    hits: tuple[Hit, ...]
    next_line: int | None


class LogSearch:
    """The search of one log with one filter. Searching forward extends the index where needed."""

    def __init__(self, log: LogIndex, wanted: LineFilter) -> None:
        self.log, self.wanted = log, wanted
        self._test = wanted.test()
        self._offsets = wanted.offsets()
        self._block = _SLOW_BLOCK if self._offsets is None else _BLOCK

    def forward(self, start: int, at_most: int = 1) -> SearchResult:
        """The first matches from a line on."""
        hits: list[Hit] = []
        line = max(start, 0)
        if line >= self.log.count:
            self.log.advance()
            if line >= self.log.count:
                return SearchResult((), None if self.log.complete else line)
        with reading(self.log.path) as fd:
            if fd is None:
                return SearchResult((), None)
            at, until = self.log.offset_of(fd, line), time.monotonic() + _CALL_S
            while True:
                block, behind = self._whole_lines(fd, at, line)
                if not block:
                    return SearchResult(tuple(hits), None)
                for hit in self._hits(block, line):
                    hits.append(hit)
                    if len(hits) == at_most:
                        return SearchResult(tuple(hits), hit.line + 1)
                line += block.count(b"\n") + (not block.endswith(b"\n"))
                at = behind
                if time.monotonic() >= until:
                    return SearchResult(tuple(hits), line)

    def backward(self, start: int, at_most: int = 1) -> SearchResult:
        """The matches up to and including a line, last first."""
        hits: list[Hit] = []
        line = min(start, self.log.count - 1)
        with reading(self.log.path) as fd:
            if fd is None or line < 0:
                return SearchResult((), None)
            upto, until = self.log.offset_of(fd, line + 1), time.monotonic() + _CALL_S
            while line >= 0:
                begin = max(self.log.base, upto - self._block)
                block = os.pread(fd, upto - begin, begin)
                if begin > self.log.base:
                    feed = block.find(b"\n", 0, len(block) - 1)
                    if feed < 0:  # a line longer than that
                        begin = self.log.offset_of(fd, line)
                        block = _ends(fd, begin, upto)
                    else:
                        begin += feed + 1
                        block = block[feed + 1 :]
                first = line + 1 - block.count(b"\n") - (not block.endswith(b"\n"))
                for hit in reversed(list(self._hits(block, first))):
                    hits.append(hit)
                    if len(hits) == at_most:
                        return SearchResult(tuple(hits), hit.line - 1 if hit.line else None)
                upto, line = begin, first - 1
                if time.monotonic() >= until:
                    break
        return SearchResult(tuple(hits), line if line >= 0 else None)

    def _whole_lines(self, fd: int, at: int, line: int) -> tuple[bytes, int]:
        """About a block of whole lines from offset `at`, the start of `line`, and the end offset; empty at the end."""
        log, size = self.log, self._block
        while log.end - at < size and log.advance(_BLOCK):
            pass
        block = os.pread(fd, min(size, log.end - at), at)
        feed = block.rfind(b"\n")
        if feed >= 0:
            return block[: feed + 1], at + feed + 1
        while log.feeds <= line and log.advance(_BLOCK):
            pass
        behind = log.offset_of(fd, line + 1)
        return _ends(fd, at, behind), behind

    def _hits(self, block: bytes, line: int) -> Iterator[Hit]:
        if self._offsets is not None:
            yield from self._at_offsets(block, line, self._offsets)
            return
        lines = block.removesuffix(b"\n").split(b"\n")
        texts = (raw.decode("ascii") for raw in lines) if _is_plain(lines, block) else map(shown, lines)
        for number, text in enumerate(texts, start=line):
            if self._test(text):
                yield Hit(number, text)

    def _at_offsets(
        self, block: bytes, line: int, offsets: Callable[[bytes], Iterator[int]]
    ) -> Iterator[Hit]:
        counted, looked_upto = 0, -1
        for offset in offsets(block):
            if offset < looked_upto:
                continue
            begin = block.rfind(b"\n", 0, offset) + 1
            end = block.find(b"\n", offset)
            looked_upto = end = len(block) if end < 0 else end
            line += block.count(b"\n", counted, begin)
            counted = begin
            text = shown(block[begin:end])
            if self._test(text):
                yield Hit(line, text)


def _is_plain(lines: list[bytes], block: bytes) -> bool:
    return _PLAIN.search(block) is None and max(map(len, lines)) <= LONGEST


def _ends(fd: int, begin: int, upto: int) -> bytes:
    """A very long line, shortened to its beginning and end."""
    if upto - begin <= 4 * LONGEST:
        return os.pread(fd, upto - begin, begin)
    return os.pread(fd, LONGEST, begin) + os.pread(fd, LONGEST, upto - LONGEST)
