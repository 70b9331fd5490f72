"""Search a log by text, regular expression or level, in either direction, in steps of bounded time."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kgops.views.log_index import LogIndex, reading
from kgops.views.log_lines import LONGEST, LineFilter, shown

__all__ = ["Hit", "LogSearch", "SearchResult"]

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
