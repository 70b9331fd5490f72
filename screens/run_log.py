"""Log viewer of the run screen: follow, search, filter by level; the file is read in a thread."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from kgops.jobs.text import one_line
from kgops.present.log_lines import Level, LineFilter
from kgops.present.log_reader import ALL, LogReader, Page, PageRequest, Seek, SeekResult
from kgops.present.rows import Piece, Row
from screens.background import begin
from screens.widgets.boxes import has_panels
from screens.widgets.lines import Lines
from screens.widgets.log_lines import LogLines

if TYPE_CHECKING:
    from screens.app import KgopsApp

_EVERY_S = 1.0
_END = 1 << 62  # line number beyond the last
_BAD: frozenset[Level] = frozenset({"error", "warning"})
_NEXT_LEVELS: dict[frozenset[Level], frozenset[Level]] = {ALL: _BAD, _BAD: frozenset({"error"})}
_LEVEL_NAMES = {_BAD: "warnings and errors", frozenset({"error"}): "errors"}
_NOTHING_YET, _NOTHING = "no output yet", "no output"


class RunLog(Vertical):
    """Heading and log lines. A thread reads the file; the newest request is answered next."""

    def __init__(self, path: Path) -> None:
        super().__init__(id="log")
        self._path = path
        self._reader: LogReader | None = None
        self._request, self._page = PageRequest(), Page()
        self._wake = asyncio.Event()
        self._filter: LineFilter | None = None  # the last search
        self._pattern: re.Pattern[str] | None = None
        self._mark: int | None = None  # line of the last search hit or click
        self._below = 0  # screen lines above the marked line when the level changes
        self._grows = True
        self._error: str | None = None
        self._beyond = ""

    def compose(self) -> ComposeResult:
        yield Lines(id="heading")
        yield LogLines(id="lines")

    def on_mount(self) -> None:
        begin(self, self._keep_reading)

    @property
    def lines(self) -> LogLines:
        return self.query_one("#lines", LogLines)

    @property
    def kgops(self) -> KgopsApp:
        return cast("KgopsApp", self.app)

    def grows(self, going: bool) -> None:
        """Sets whether the log may still grow. The last lines are read in any case."""
        if going != self._grows:
            self._grows = going
            self.draw()  # the reader finds no other page where the last line was there already
            self._wake.set()

    def read_again(self) -> None:
        self._wake.set()

    def says_beyond(self, words: str) -> None:
        """What the file lacks of the log, for the heading: no search finds it."""
        if words != self._beyond:
            self._beyond = words
            self._draw_heading(self.size.width)

    # --- reading ---

    async def _keep_reading(self) -> None:
        while True:
            self._wake.clear()
            request = self._request
            error_text = None
            try:
                page = await asyncio.to_thread(self._read_page, request)
            except OSError as error:
                page, error_text = Page(request.levels), os.strerror(error.errno or 0)
            if (page, error_text) != (self._page, self._error):
                self._error = error_text
                self._show_page(page)
            if not page.busy:
                await self._rest()

    def _read_page(self, request: PageRequest) -> Page:
        """In a thread."""
        if self._reader is None:
            self._reader = LogReader(self._path)
        return self._reader.look(request)

    async def _rest(self) -> None:
        """Waits for a request, or until the log may have grown."""
        while not self._wake.is_set():
            try:
                await asyncio.wait_for(self._wake.wait(), _EVERY_S)
            except TimeoutError:
                if self._grows and self.screen.is_current and not self.kgops.feed.paused:
                    return

    def _request_page(self, levels: frozenset[Level] | None = None, seek: Seek | None = None) -> None:
        """Wakes the reader only for lines outside the current page, which holds more than the screen."""
        lines, before = self.lines, self._request
        height = max(lines.size.height, 1)
        request = PageRequest(
            None if lines.follows else lines.top,
            height,
            before.levels if levels is None else levels,
            before.seek if seek is None else seek,
        )
        near = range(max(lines.top - height, 0), min(lines.top + 2 * height, self._page.rows))
        have = range(self._page.first, self._page.first + len(self._page.lines))
        is_here = not near or (near[0] in have and near[-1] in have)
        if not is_here or request[2:] != before[2:]:
            self._wake.set()
        self._request = request

    def _show_page(self, page: Page) -> None:
        before, self._page, lines = self._page, page, self.lines
        follows, top = lines.follows, lines.top
        self.draw()
        if (page.numbered, page.file) != (before.numbered, before.file) and not follows:
            lines.bring_to(top + page.rows - before.rows, 0)  # keep the distance from the end
        if page.sought is not None and page.sought != before.sought:
            self._show_hit(page.sought)
        self._request_page()

    def draw(self) -> None:
        lines, width = self.lines, self.size.width
        if self._page.rows:
            lines.put(self._page, mark=self._mark, searched=self._pattern)
        else:
            lines.show_message(self._why_empty())
        self._draw_heading(width)

    def on_log_lines_scrolled(self) -> None:
        self._request_page()
        self._draw_heading(self.size.width)

    def on_log_lines_marked(self, message: LogLines.Marked) -> None:
        self._mark = message.number
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    # --- key actions ---

    def search(self) -> None:
        ends = "" if self._filter is None else "; empty ends the search"
        question = f"search the log for words or a /pattern/{ends}"
        self.kgops.prompt(question, self._search_for, accepts_empty=True)

    def _search_for(self, text: str) -> None:
        """Case-sensitive if the text has capitals. An empty text ends the search."""
        self._filter = self._pattern = self._mark = None
        if text:
            is_pattern = len(text) > 2 and text[0] == text[-1] == "/"
            line_filter = LineFilter(text[1:-1] if is_pattern else text, is_pattern, text == text.lower())
            try:
                self._pattern = _compiled(line_filter)
            except re.error as error:
                self.kgops.say(f"invalid pattern {text}: {error}", "bad")
            else:
                self._filter = line_filter
                self._seek(0)
        self.draw()

    def next_hit(self, step: int) -> None:
        """Goes to the next search hit, or without a search to the next warning or error."""
        self._seek(step)

    def _seek(self, step: int) -> None:
        line_filter = self._filter or LineFilter(levels=_BAD)
        line = self._line_from(step)
        self._request_page(seek=Seek(line, line_filter, step, self._time()))

    def _line_from(self, step: int) -> int:
        """Start line of a search: the mark if visible, else the edge of the screen."""
        numbers = self._numbers_in_sight()
        if not numbers:
            return _END
        if step and self._mark in numbers:
            return self._mark or 0
        return numbers[-1] + 1 if step < 0 else numbers[0] - (step > 0)

    def next_level(self) -> None:
        """Cycles through all lines, warnings and errors, errors only; keeps the marked line in place."""
        levels = _NEXT_LEVELS.get(self._request.levels, ALL)
        numbers = self._numbers_in_sight()
        if self._mark in numbers:
            self._below = max(numbers.index(self._mark or 0), self.lines.size.height // 3)
            self._request_page(levels, Seek(self._mark or 0, time=self._time()))
        elif numbers and not self.lines.follows:
            self._below = 0
            self._request_page(levels, Seek(numbers[0], time=self._time()))
        else:
            self._request_page(levels)

    def _numbers_in_sight(self) -> list[int]:
        lines = [self._page.row(row) for row in self.lines.in_sight]
        return [line.number for line in lines if line is not None and line.number is not None]

    def _time(self) -> int:
        return self._request.seek.time + 1 if self._request.seek is not None else 1

    def _show_hit(self, sought: SeekResult) -> None:
        lines, seek = self.lines, sought.seek
        if sought.row is None:
            message = (
                "no warnings or errors" if self._filter is None else f"no line contains {self._filter.text}"
            )
            if seek.wanted is not None:
                self.kgops.say(message, "warn")
            return
        if seek.wanted is None:
            lines.bring_to(sought.row, self._below)
        else:
            self._mark = sought.line
            if sought.row not in lines.in_sight:
                lines.bring_to(sought.row, lines.size.height // 3)
            if sought.around:
                self.kgops.say("search continued at the " + ("beginning" if seek.step > 0 else "end"))
        self.draw()

    # --- the heading ---

    def _draw_heading(self, width: int) -> None:
        pieces = [Piece("LOG", "head"), Piece(f"  {self._position()}", "dim")]
        if self._beyond:
            unsearched = ", not searched" if self._filter is not None else ""
            pieces.append(Piece(f"  {self._beyond}{unsearched}", "dim"))
        levels = self._page.levels
        if levels in _LEVEL_NAMES:
            pieces.append(Piece(f"  only {_LEVEL_NAMES[levels]}", "warn"))
        if self._filter is not None:
            shown = one_line(self._filter.text, max(width - 60, 12))
            pieces += [Piece(f"  {shown}", "strong"), Piece("  ] next  [ previous", "dim")]
        heading, is_roomy = self.query_one("#heading", Lines), has_panels(*self.app.size)
        heading.display = not is_roomy
        heading.show([Row(tuple(pieces))])
        tones, _ = self.kgops.tones
        colours = ((piece.text, tones[piece.tone].color) for piece in pieces[1:])
        parts = ((text, f"{colour.name} not bold") for text, colour in colours if colour is not None)
        self.border_title = Content.assemble("LOG", *parts) if is_roomy else None

    def _position(self) -> str:
        page, lines = self._page, self.lines
        if self._error is not None or not page.rows:
            return ""
        if not page.numbered:
            return f"counting lines, {page.counted:.0%}"
        counted = f"{page.rows:,} line{'' if page.rows == 1 else 's'}"
        if lines.follows and self._grows:
            return f"following, {counted}"
        visible = lines.in_sight
        if len(visible) == page.rows:
            return counted
        return f"{visible[0] + 1:,} to {visible[-1] + 1:,} of {counted}" if visible else ""

    def _why_empty(self) -> str:
        if self._error is not None:
            return f"the log cannot be read: {self._error}"
        if self._page.levels not in _LEVEL_NAMES:
            return (_NOTHING_YET if self._grows else _NOTHING) if self._page.numbered else ""
        level_name = _LEVEL_NAMES[self._page.levels]
        return (
            f"no {level_name}"
            if self._page.numbered
            else f"searching for {level_name}, {self._page.counted:.0%}"
        )


def _compiled(line_filter: LineFilter) -> re.Pattern[str]:
    """Pattern of the highlighted text; only ASCII letters are matched case-insensitively."""
    flags = (
        re.IGNORECASE | (re.NOFLAG if line_filter.regex else re.ASCII)
        if line_filter.ignore_case
        else re.NOFLAG
    )
    return re.compile(line_filter.text if line_filter.regex else re.escape(line_filter.text), flags)
