"""Queries for benchmarks and measured values, with sorting, filters and paging; reads the database, so it blocks."""

from __future__ import annotations

import platform
import threading
import time
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kgops.experiments import benchmark_list, fingerprint
from kgops.experiments.benchmark_list import Entry
from kgops.settings import Home
from storage import conditions, metric_query
from storage.database import Connection, explained, open_reader
from storage.errors import DatabaseMissing
from storage.metric_query import Known, Metric

if TYPE_CHECKING:
    from kgops.experiments.result_detail import Detail

__all__ = ["BLOCK", "MetricPage", "MetricQuery", "MetricReader"]

BLOCK = 200
_MACHINE = "on:"  # prefix of a filter word with the beginning of a fingerprint's key


class MetricQuery(NamedTuple):
    """Filter, sort order and page; `cursor` is the key of the row that the page follows, if any."""

    single: bool = False  # single values instead of benchmarks
    text: str = ""
    all_machines: bool = False  # include other fingerprints
    sort: str = "id"
    descending: bool = True
    look: int = 0
    cursor: object = None
    around: int = 0
    size: int = BLOCK

    @property
    def of(self) -> tuple[object, ...]:
        """The fields that determine which rows are shown, and their order."""
        return self[:6]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word.lower() for word in self.text.split() if not word.startswith(_MACHINE))

    @property
    def machine(self) -> str | None:
        """Beginning of the fingerprint key in an `on:` word, if there is one."""
        named = [word.removeprefix(_MACHINE) for word in self.text.split() if word.startswith(_MACHINE)]
        return named[-1] if named else None

    @property
    def beyond(self) -> bool:
        """Whether values of other machines may be shown."""
        return self.all_machines or self.machine is not None


class MetricPage(NamedTuple):
    """A snapshot: the keys of all rows, and the rows of one page."""

    query: MetricQuery
    keys: Sequence[Any] = ()
    rows: Mapping[Any, Entry | Metric] = {}
    cursor_row: int | None = None  # row of the cursor; None: unchanged
    first: int = 0
    machine: str | None = None  # machine whose values are shown by default
    host: str | None = None  # its host name
    measured: int = 0  # number of measured rows; the others are untested claims
    other_machines: int = 0  # number of entries of other machines
    anything: bool = False
    complete: bool = True  # False: the next query returns more rows
    took_s: float = 0.0


class MetricReader:
    """Reads pages and details over one connection, for one thread at a time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._conn: Connection | None = None
        self._closed = False
        self._one_at_a_time = threading.Lock()
        self._version: tuple[int, int] | None = None
        self._look = 0
        self._machine: str | None = None
        self._host: str | None = None
        self._benchmarks: list[Entry] | None = None
        self._known: Known | None = None
        self._orders: dict[tuple[object, ...], array[int]] = {}
        self._before: MetricPage | None = None

    def look(self, query: MetricQuery) -> MetricPage:
        """A page of rows; empty if there is no database."""
        with self._one_at_a_time, explained(self._home.database):
            conn = self._open()
            if conn is None:
                return MetricPage(query)
            begin = time.perf_counter()
            with conditions.read_snapshot(conn):
                self._take_note_of_changes(conn, query)
                page = self._single(conn, query) if query.single else self._entries(conn, query)
            self._before = page._replace(took_s=time.perf_counter() - begin)
            return self._before

    def detail(self, one: Entry | Metric) -> Detail | None:
        """Detail of a benchmark or value; None if the reader is closed."""
        from kgops.experiments import (
            result_detail,  # imports all verdict code; a first paint does not wait for it
        )

        with self._one_at_a_time, explained(self._home.database):
            conn = self._open()
            if conn is None:
                return None
            if isinstance(one, Metric):
                return result_detail.metric_detail(conn, one, self._machine)
            return result_detail.entry_detail(conn, one, self._machine)

    def close(self) -> None:
        with self._one_at_a_time:
            self._closed = True
            if self._conn is not None:
                self._conn.close()
            self._conn = None

    def _open(self) -> Connection | None:
        if self._conn is None and not self._closed:
            try:
                self._conn = open_reader(self._home.database)
            except DatabaseMissing:
                return None
        return self._conn

    def _take_note_of_changes(self, conn: Connection, query: MetricQuery) -> None:
        """Rereads the database only for a new `look`: a filter does not change its contents."""
        if self._version is not None and query.look == self._look:
            return
        self._look, version = query.look, conditions.version(conn)
        if version == self._version:
            return
        self._version, self._machine = version, metric_query.newest_machine(conn, platform.node())
        self._host = fingerprint.host(conn, self._machine) if self._machine is not None else None
        self._benchmarks = benchmark_list.benchmarks(conn)
        self._orders.clear()
        if self._known is not None:
            self._known = metric_query.known(conn, self._known)

    # --- benchmarks ---

    def _entries(self, conn: Connection, query: MetricQuery) -> MetricPage:
        """The first page has only recent values of single commands, since reading all takes longer."""
        complete = self._before is not None
        if complete:
            self._known = self._known or metric_query.known(conn)
        commands = benchmark_list.of_commands(conn, self._known)
        everything = sorted((*(self._benchmarks or ()), *commands), key=lambda one: -one.at)
        ours = [one for one in everything if one.machine == self._machine]
        candidates = everything if query.beyond else ours
        if everything:
            candidates = [benchmark_list.overview(), *candidates, *benchmark_list.unmeasured(ours)]
        shown = {one.key: one for one in candidates if _has(one, query)}
        keys = list(shown)
        return MetricPage(
            query,
            keys,
            shown,
            _cursor_row(keys, query, self._before),
            machine=self._machine,
            host=self._host,
            measured=sum(one.machine is not None for one in shown.values()),
            other_machines=len(everything) - len(ours),
            anything=bool(everything),
            complete=complete,
        )

    # --- values one by one ---

    def _single(self, conn: Connection, query: MetricQuery) -> MetricPage:
        before = self._before
        if before is not None and before.query.of == query.of:
            keys, cursor_row = before.keys, None
        else:
            keys = self._numbers(conn, query)
            cursor_row = _cursor_row(keys, query, before)
        around = query.around if cursor_row is None else cursor_row
        first = max(min(around - query.size // 2, len(keys) - query.size), 0)
        rows = metric_query.of_numbers(conn, keys[first : first + query.size])
        anything = bool(keys) or self._machine is not None
        return MetricPage(
            query, keys, rows, cursor_row, first, self._machine, self._host, len(keys), anything=anything
        )

    def _numbers(self, conn: Connection, query: MetricQuery) -> Sequence[int]:
        ours = None if query.beyond else self._machine
        if not query.words and query.machine is None:
            return self._order(conn, ours, query)
        self._known = self._known or metric_query.known(conn)
        numbers = metric_query.with_words(self._known, query.words, query.machine or ours)
        if query.sort == "id":
            return numbers[::-1] if query.descending else numbers
        return metric_query.in_order(self._order(conn, None, query), numbers)

    def _order(self, conn: Connection, machine: str | None, query: MetricQuery) -> array[int]:
        wanted = machine, *(by := (query.sort, query.descending))
        if wanted not in self._orders:
            if query.sort in metric_query.WORDS:
                self._known = self._known or metric_query.known(conn)
                self._orders[wanted] = metric_query.ordered_by_words(self._known, machine, *by)
            else:
                self._orders[wanted] = metric_query.ordered(conn, machine, *by)
        return self._orders[wanted]


def _has(entry: Entry, query: MetricQuery) -> bool:
    inside = f"{entry.name} {entry.command}".lower()
    return (entry.machine or "").startswith(query.machine or "") and all(
        word in inside for word in query.words
    )


def _cursor_row(keys: Sequence[Any], query: MetricQuery, before: MetricPage | None) -> int | None:
    """The cursor's row if it still exists; else the first row if the selection changed."""
    if query.cursor is not None:
        try:
            return keys.index(query.cursor)
        except ValueError:
            return 0
    return None if before is not None and before.query.of == query.of else 0
