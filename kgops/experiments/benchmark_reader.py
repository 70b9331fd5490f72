"""Reads the list of benchmarks and their details for the benchmarks screen. It reads the database, so it blocks."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kgops.experiments import benchmark_list, fingerprint
from kgops.experiments.benchmark_list import Entry, Key
from kgops.settings import Home
from storage import benches, conditions
from storage.database import Connection, explained, open_reader
from storage.errors import DatabaseMissing

if TYPE_CHECKING:
    from kgops.experiments.result_detail import Detail

_MACHINE = "on:"  # prefix of a filter word with the beginning of a fingerprint's key


class BenchmarkQuery(NamedTuple):
    """Filter of the list; `cursor` is the key of the row that the page follows, if any."""

    text: str = ""
    all_machines: bool = False  # include other fingerprints
    look: int = 0
    cursor: object = None
    around: int = 0
    size: int = 0

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
        """Whether benchmarks of other machines may be shown."""
        return self.all_machines or self.machine is not None


class BenchmarkPage(NamedTuple):
    """A snapshot of the list."""

    query: BenchmarkQuery
    rows: Mapping[Any, Entry] = {}
    cursor_row: int | None = None  # row of the cursor; None: unchanged
    machine: str | None = None  # machine whose benchmarks are shown by default
    host: str | None = None  # its host name
    measured: int = 0  # number of measured rows
    other_machines: int = 0  # number of entries of other machines
    anything: bool = False
    took_s: float = 0.0

    def row_of(self, key: object) -> int | None:
        return next((row for row, one in enumerate(self.rows) if one == key), None)


class BenchmarkReader:
    """Reads pages and details over one connection, for one thread at a time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._conn: Connection | None = None
        self._closed = False
        self._one_at_a_time = threading.Lock()
        self._version: tuple[int, int] | None = None
        self._machine: str | None = None
        self._host: str | None = None
        self._measured: list[Entry] = []
        self._shown: BenchmarkQuery | None = None

    def look(self, query: BenchmarkQuery) -> BenchmarkPage:
        """The list; empty if there is no database."""
        with self._one_at_a_time, explained(self._home.database):
            conn = self._open()
            if conn is None:
                return BenchmarkPage(query)
            begin = time.perf_counter()
            with conditions.read_snapshot(conn):
                self._read_if_changed(conn)
            return self._page(query)._replace(took_s=time.perf_counter() - begin)

    def detail(self, one: Entry) -> Detail | None:
        """Detail of a benchmark; None if the reader is closed."""
        from kgops.experiments import (
            result_detail,  # imports all verdicts; a first paint does not wait for it
        )

        with self._one_at_a_time, explained(self._home.database):
            conn = self._open()
            return None if conn is None else result_detail.entry_detail(conn, one, self._machine)

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

    def _read_if_changed(self, conn: Connection) -> None:
        version = conditions.version(conn)
        if version == self._version:
            return
        self._version, self._machine = version, benches.newest_machine(conn, platform.node())
        self._host = fingerprint.host(conn, self._machine) if self._machine is not None else None
        self._measured = sorted(
            (*benchmark_list.benchmarks(conn), *benchmark_list.of_commands(conn)), key=lambda one: -one.at
        )

    def _page(self, query: BenchmarkQuery) -> BenchmarkPage:
        ours = [one for one in self._measured if one.machine == self._machine]
        candidates = self._measured if query.beyond else ours
        if self._measured:
            candidates = [benchmark_list.options(), *candidates]
        rows = {one.key: one for one in candidates if _has(one, query)}
        same = self._shown is not None and self._shown[:2] == query[:2]
        self._shown = query
        return BenchmarkPage(
            query,
            rows,
            _cursor_row([*rows], query, same),
            machine=self._machine,
            host=self._host,
            measured=sum(one.machine is not None for one in rows.values()),
            other_machines=len(self._measured) - len(ours),
            anything=bool(self._measured),
        )


def _has(entry: Entry, query: BenchmarkQuery) -> bool:
    inside = f"{entry.name} {entry.command}".lower()
    return (entry.machine or "").startswith(query.machine or "") and all(
        word in inside for word in query.words
    )


def _cursor_row(keys: Sequence[Key], query: BenchmarkQuery, same: bool) -> int | None:
    """The cursor's row if it still exists; else the first row if the filter changed."""
    if query.cursor is None:
        return None if same else 0
    return next((row for row, key in enumerate(keys) if key == query.cursor), 0)
