"""Matching lines of a log, addressable by their index among the matches; sparse marks in constant memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from kgops.views.log_index import LogIndex
from kgops.views.log_lines import LineFilter
from kgops.views.log_search import Hit, LogSearch

__all__ = ["LogHits"]

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
