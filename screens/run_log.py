"""A run's log on its screen: followed, searched, narrowed to what sounds bad, and never waited for."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Vertical

from kgops.jobs.text import one_line
from kgops.views.log_lines import Level, LineFilter
from kgops.views.log_reader import ALL, LogReader, Page, PageRequest, Seek, SeekResult
from screens.background import begin
from screens.question import Ask
from screens.rows import Piece, Row
from screens.widgets.lines import Lines
from screens.widgets.log_lines import LogLines

if TYPE_CHECKING:
    from screens.app import KgopsApp

__all__ = ["RunLog"]

_EVERY_S = 1.0
_END = 1 << 62  # a line behind all others
_BAD: frozenset[Level] = frozenset({"error", "warning"})
_NARROWER: dict[frozenset[Level], frozenset[Level]] = {ALL: _BAD, _BAD: frozenset({"error"})}
_CALLED = {_BAD: "warnings and errors", frozenset({"error"}): "errors"}
_NOTHING_YET, _NOTHING = "nothing yet", "nothing was written"


class RunLog(Vertical):
    """A heading and the lines. Everything is read in a thread, and the newest question is answered next."""

    def __init__(self, path: Path) -> None:
        super().__init__(id="log")
        self._path = path
        self._reader: LogReader | None = None
        self._asked, self._page = PageRequest(), Page()
        self._wake = asyncio.Event()
        self._wanted: LineFilter | None = None  # what was searched for last
        self._searched: re.Pattern[str] | None = None
        self._mark: int | None = None  # the line that somebody was brought to
        self._below = 0  # lines above it on the screen when levels change
        self._grows = True
        self._trouble: str | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="heading")
        yield LogLines(id="lines")

    def on_mount(self) -> None:
        begin(self, self._read)

    @property
    def lines(self) -> LogLines:
        return self.query_one("#lines", LogLines)

    @property
    def kgops(self) -> KgopsApp:
        return cast("KgopsApp", self.app)

    def grows(self, going: bool) -> None:
        """Whether somebody may write it still. What was written last is looked at in any case."""
        if going != self._grows:
            self._grows = going
            self._wake.set()

    # --- reading ---

    async def _read(self) -> None:
        while True:
            self._wake.clear()
            asked = self._asked
            trouble = None
            try:
                page = await asyncio.to_thread(self._look, asked)
            except OSError as error:
                page, trouble = Page(asked.levels), os.strerror(error.errno or 0)
            if (page, trouble) != (self._page, self._trouble):
                self._trouble = trouble
                self._take(page)
            if not page.busy:
                await self._rest()

    def _look(self, asked: PageRequest) -> Page:
        """In a thread."""
        if self._reader is None:
            self._reader = LogReader(self._path)
        return self._reader.look(asked)

    async def _rest(self) -> None:
        """Until somebody asks for something, or something may have been written."""
        while not self._wake.is_set():
            try:
                await asyncio.wait_for(self._wake.wait(), _EVERY_S)
            except TimeoutError:
                if self._grows and self.screen.is_current and not self.kgops.feed.paused:
                    return

    def _ask(self, levels: frozenset[Level] | None = None, seek: Seek | None = None) -> None:
        """Wakes the reader only for what is not here already: a page has some screens more than are in sight."""
        lines, before = self.lines, self._asked
        height = max(lines.size.height, 1)
        asked = PageRequest(
            None if lines.follows else lines.top,
            height,
            before.levels if levels is None else levels,
            before.seek if seek is None else seek,
        )
        near = range(max(lines.top - height, 0), min(lines.top + 2 * height, self._page.rows))
        have = range(self._page.first, self._page.first + len(self._page.lines))
        is_here = not near or (near[0] in have and near[-1] in have)
        if not is_here or asked[2:] != before[2:]:
            self._wake.set()
        self._asked = asked

    def _take(self, page: Page) -> None:
        before, self._page, lines = self._page, page, self.lines
        follows, top = lines.follows, lines.top
        self.draw()
        if (page.numbered, page.file) != (before.numbered, before.file) and not follows:
            lines.bring_to(top + page.rows - before.rows, 0)  # as far from the end as it was
        if page.sought is not None and page.sought != before.sought:
            self._arrive(page.sought)
        self._ask()

    def draw(self) -> None:
        lines, width = self.lines, self.size.width
        if self._page.rows:
            lines.put(self._page, mark=self._mark, searched=self._searched)
        else:
            lines.tell(self._why_empty())
        self._draw_heading(width)

    def on_log_lines_scrolled(self) -> None:
        self._ask()
        self._draw_heading(self.size.width)

    def on_log_lines_marked(self, message: LogLines.Marked) -> None:
        self._mark = message.number
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    # --- what keys do ---

    def search(self) -> None:
        def answered(text: str | None) -> None:
            if text is not None:
                self._search_for(text)

        ends = "" if self._wanted is None else "; nothing ends it"
        question = f"search the log for words or a /pattern/{ends}"
        self.app.push_screen(Ask(question, nothing_counts=True), answered)

    def _search_for(self, text: str) -> None:
        """Capitals count where there are any. Without a text nothing is searched for any more."""
        self._wanted = self._searched = self._mark = None
        if text:
            is_pattern = len(text) > 2 and text[0] == text[-1] == "/"
            wanted = LineFilter(text[1:-1] if is_pattern else text, is_pattern, text == text.lower())
            try:
                self._searched = _pattern(wanted)
            except re.error as error:
                self.kgops.say(f"{text} is no pattern: {error}", "bad")
            else:
                self._wanted = wanted
                self._seek(0)
        self.draw()

    def next_hit(self, step: int) -> None:
        """Of what was searched for; else the next line that sounds bad."""
        self._seek(step)

    def _seek(self, step: int) -> None:
        wanted = self._wanted or LineFilter(levels=_BAD)
        line = self._line_from(step)
        self._ask(seek=Seek(line, wanted, step, self._time()))

    def _line_from(self, step: int) -> int:
        """The mark while it is in sight; else a search goes on from the edge of what is."""
        numbers = self._numbers_in_sight()
        if not numbers:
            return _END
        if step and self._mark in numbers:
            return self._mark or 0
        return numbers[-1] + 1 if step < 0 else numbers[0] - (step > 0)

    def turn_level(self) -> None:
        """All lines, then only bad ones, then only the worst; whoever stands somewhere stays, with what led there."""
        levels = _NARROWER.get(self._asked.levels, ALL)
        numbers = self._numbers_in_sight()
        if self._mark in numbers:
            self._below = max(numbers.index(self._mark or 0), self.lines.size.height // 3)
            self._ask(levels, Seek(self._mark or 0, time=self._time()))
        elif numbers and not self.lines.follows:
            self._below = 0
            self._ask(levels, Seek(numbers[0], time=self._time()))
        else:
            self._ask(levels)

    def _numbers_in_sight(self) -> list[int]:
        found = [self._page.row(row) for row in self.lines.in_sight]
        return [line.number for line in found if line is not None and line.number is not None]

    def _time(self) -> int:
        return self._asked.seek.time + 1 if self._asked.seek is not None else 1

    def _arrive(self, sought: SeekResult) -> None:
        lines, seek = self.lines, sought.seek
        if sought.row is None:
            told = "nothing sounds bad" if self._wanted is None else f"no line has {self._wanted.text}"
            if seek.wanted is not None:
                self.kgops.say(told, "warn")
            return
        if seek.wanted is None:
            lines.bring_to(sought.row, self._below)
        else:
            self._mark = sought.line
            if sought.row not in lines.in_sight:
                lines.bring_to(sought.row, lines.size.height // 3)
            if sought.around:
                self.kgops.say("round the end: from the " + ("beginning" if seek.step > 0 else "end"))
        self.draw()

    # --- the heading ---

    def _draw_heading(self, width: int) -> None:
        pieces = [Piece("LOG", "head"), Piece(f"  {self._where()}", "dim")]
        levels = self._page.levels
        if levels in _CALLED:
            pieces.append(Piece(f"  only {_CALLED[levels]}", "warn"))
        if self._wanted is not None:
            shown = one_line(self._wanted.text, max(width - 60, 12))
            pieces += [Piece(f"  {shown}", "strong"), Piece("  n next  N before", "dim")]
        self.query_one("#heading", Lines).show([Row(tuple(pieces))])

    def _where(self) -> str:
        page, lines = self._page, self.lines
        if self._trouble is not None or not page.rows:
            return ""
        if not page.numbered:
            return f"counting lines, {page.counted:.0%}"
        counted = f"{page.rows:,} line{'' if page.rows == 1 else 's'}"
        if lines.follows and self._grows:
            return f"as it grows, {counted}"
        seen = lines.in_sight
        if len(seen) == page.rows:
            return counted
        return f"{seen[0] + 1:,} to {seen[-1] + 1:,} of {counted}" if seen else ""

    def _why_empty(self) -> str:
        if self._trouble is not None:
            return f"the log cannot be read: {self._trouble}"
        if self._page.levels not in _CALLED:
            return (_NOTHING_YET if self._grows else _NOTHING) if self._page.numbered else ""
        called = _CALLED[self._page.levels]
        return f"no {called}" if self._page.numbered else f"looking for {called}, {self._page.counted:.0%}"


def _pattern(wanted: LineFilter) -> re.Pattern[str]:
    """What of a line is shown as found; a to z alone are the same as their capitals."""
    flags = re.IGNORECASE | (re.NOFLAG if wanted.regex else re.ASCII) if wanted.ignore_case else re.NOFLAG
    return re.compile(wanted.text if wanted.regex else re.escape(wanted.text), flags)
