"""Queries of the history screen and the pages read for them. Everything here waits for disk: call it in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kgops.errors import Unavailable, Usage
from kgops.present.listing import BLOCK, Listing, Sort, sort_by, unknown_metrics
from kgops.settings import Home
from storage import filters, reports, run_list, series
from storage.database import Connection, explained, open_reader
from storage.errors import DatabaseMissing
from storage.filters import ParsedFilter
from storage.runs import Run


class Query(NamedTuple):
    """Filter, order and visible range. Equal queries give equal pages; a higher `look` forces a new read."""

    text: str = ""  # the last word may be incomplete; it is read as while typing, also after Enter
    sort: str = "id"
    descending: bool = True
    look: int = 0
    cursor: int | None = None  # the run that the cursor stays on; None: the first
    around: int = 0  # row in the middle of the screen
    size: int = BLOCK  # rows to read around it

    @property
    def of(self) -> tuple[object, ...]:
        """The fields that decide which runs are shown, in which order."""
        return self.text, self.sort, self.descending, self.look


class Page(NamedTuple):
    """Numbers of all matching runs, and the rows of the visible ones."""

    query: Query
    numbers: Sequence[int] = ()
    total: int = 0
    existing: Sequence[int] = ()  # all runs of the record; the same object until that changes
    cursor_row: int | None = None  # row number of the cursor; None: unchanged
    first: int = 0
    runs: dict[int, Run] = {}  # noqa: RUF012
    tags: dict[int, list[str]] = {}  # noqa: RUF012
    metric: str | None = None  # shown instead of each run's own metric
    values: dict[int, float] = {}  # noqa: RUF012
    parsed_filter: ParsedFilter = ParsedFilter(())
    notes: tuple[str, ...] = ()
    took_s: float = 0.0  # time of the query

    def row_of(self, key: object) -> int | None:
        return next((row for row, number in enumerate(self.numbers) if number == key), None)


class HistoryReader:
    """One connection, used by one thread at a time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._conn: Connection | None = None
        self._listing: Listing | None = None
        self._closed = False
        self._last_page: Page | None = None
        self._one_at_a_time = threading.Lock()

    def look(self, query: Query) -> Page:
        """An empty page before the first run. Raises Usage for an unknown sort key."""
        with self._one_at_a_time, explained(self._home.database):
            if self._closed:
                return Page(query)
            if self._conn is None:
                try:
                    self._conn = open_reader(self._home.database)
                except DatabaseMissing:
                    return Page(query)
                self._listing = Listing(self._conn)
            assert self._listing is not None
            self._last_page = self._rows(self._ordered(query, self._listing, self._conn), self._conn)
            return self._last_page

    def metrics(self) -> list[str]:
        """Names of all metrics: sort keys beside the columns."""
        with self._one_at_a_time, explained(self._home.database):
            return [] if self._conn is None else series.names(self._conn)

    def tags(self) -> list[str]:
        with self._one_at_a_time, explained(self._home.database):
            return [] if self._conn is None else reports.known_tags(self._conn)

    def close(self) -> None:
        with self._one_at_a_time:
            self._closed = True
            if self._conn is not None:
                self._conn.close()
            self._conn = self._listing = None

    def _ordered(self, query: Query, listing: Listing, conn: Connection) -> Page:
        last_page = self._last_page
        if last_page is not None and last_page.query.of == query.of:
            return last_page._replace(query=query, cursor_row=None)
        begin = time.perf_counter()
        sort = _sort(conn, query)
        parsed_filter = filters.read(query.text, typing=True)
        if last_page is not None and last_page.query.look != query.look:
            listing.refresh()
        listing.show(parsed_filter.terms, sort)
        cursor_row = None if query.cursor is None else listing.position(query.cursor)
        if cursor_row is None and query.cursor is None:
            cursor_row = 0
        metrics = [term.key for term in parsed_filter.terms if term.kind == "metric"]
        return Page(
            query._replace(around=_around(query, cursor_row, last_page)),
            listing.numbers,
            listing.total,
            listing.existing,
            cursor_row,
            metric=sort.by if sort.metric else metrics[0] if metrics else None,
            parsed_filter=parsed_filter,
            notes=tuple(unknown_metrics(conn, metrics)),
            took_s=time.perf_counter() - begin,
        )

    def _rows(self, page: Page, conn: Connection) -> Page:
        """Adds the rows around the visible ones."""
        size = page.query.size
        first = max(min(page.query.around - size // 2, len(page.numbers) - size), 0)
        numbers_read = list(page.numbers[first : first + size])
        metric = page.metric
        return page._replace(
            first=first,
            runs={run.id: run for run in run_list.of_numbers(conn, numbers_read)},
            tags=reports.tags_of_runs(conn, numbers_read),
            values=series.of_runs(conn, numbers_read, metric) if metric is not None else {},
        )


def _around(query: Query, cursor_row: int | None, last_page: Page | None) -> int:
    """Middle row of the screen; if only the set of runs changed, it moves with the cursor's run."""
    if cursor_row is None:
        return query.around
    if last_page is not None and last_page.query[:3] == query[:3] and query.cursor in last_page.numbers:
        return query.around + cursor_row - last_page.numbers.index(query.cursor)
    return cursor_row


def _sort(conn: Connection, query: Query) -> Sort:
    return sort_by(conn, query.sort, descending=query.descending)


def ended_of(home: Home, numbers: Sequence[int]) -> tuple[list[int], int]:
    """The ended runs among these, and the number of unfinished ones. Read in blocks: all runs may be marked."""
    ended: list[int] = []
    unfinished = 0
    with explained(home.database):
        conn = open_reader(home.database)
        try:
            for start in range(0, len(numbers), BLOCK):
                for run in run_list.of_numbers(conn, numbers[start : start + BLOCK]):
                    ended += [run.id] if run.ended else []
                    unfinished += not run.ended
        finally:
            conn.close()
    return ended, unfinished


def write(home: Home, name: str, numbers: Sequence[int], metrics: Sequence[str]) -> tuple[Path, int]:
    """Writes these runs to a new .csv or .json file. Returns how many there were: some may have been deleted."""
    from kgops.interchange.export import as_csv, as_json

    path = Path(name).expanduser().absolute()
    if path.suffix not in (".csv", ".json"):
        raise Usage(f"{path.name}: the name must end in .csv or .json")
    conn = open_reader(home.database)
    try:
        with path.open("x", newline="", encoding="utf-8", errors="surrogateescape") as file:
            written = -1  # one text is no run: a header or the closing bracket
            for text in (as_csv if path.suffix == ".csv" else as_json)(conn, numbers, metrics):
                file.write(text)
                written += 1
    except FileExistsError as error:
        raise Usage(f"{path} already exists") from error
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}") from error
    finally:
        conn.close()
    return path, written
