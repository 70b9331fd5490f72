"""Reads the list of benchmarks and their details for the benchmarks screen. It reads the database, so it blocks."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kgops.errors import Usage
from kgops.experiments import benchmark_list
from kgops.experiments.benchmark_list import Entry, Key
from kgops.experiments.benchmark_results import ResultReader, Series
from kgops.jobs.files import open_regular
from kgops.settings import Home
from kgops.supervisor import locks
from kgops.supervisor.control import stop_run
from storage import benches, conditions, run_list, runs
from storage.database import Connection, explained, open_reader
from storage.errors import DatabaseMissing

if TYPE_CHECKING:
    from kgops.experiments.result_detail import Detail


class BenchmarkQuery(NamedTuple):
    """Filter and order of the list; `cursor` is the key of the row that the page follows, if any."""

    text: str = ""
    sort: str = "at"
    descending: bool = True
    look: int = 0
    cursor: object = None
    around: int = 0
    size: int = 0


class BenchmarkPage(NamedTuple):
    """A snapshot of the list."""

    query: BenchmarkQuery
    rows: Mapping[Any, Entry] = {}
    cursor_row: int | None = None  # row of the cursor; None: unchanged
    shown: int = 0  # number of measured rows
    total: int = 0  # number of measured rows without a filter
    series: Sequence[Series] = ()  # all, whatever the filter
    running: bool = False  # whether a benchmark is running in this home
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
        self._results = ResultReader()
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
            result_detail,  # imports all summary; a first paint does not wait for it
        )

        with self._one_at_a_time, explained(self._home.database):
            conn = self._open()
            return None if conn is None else result_detail.entry_detail(conn, one)

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
        self._version = version
        self._measured = [*map(benchmark_list.of_series, self._results.read(conn))]

    def _page(self, query: BenchmarkQuery) -> BenchmarkPage:
        measured = benchmark_list.ordered(self._measured, query.sort, descending=query.descending)
        candidates = [benchmark_list.options(), *measured] if measured else []
        rows = {one.key: one for one in candidates if _has(one, query.text)}
        same = self._shown is not None and self._shown[:3] == query[:3]
        self._shown = query
        return BenchmarkPage(
            query,
            rows,
            _cursor_row([*rows], query, same),
            shown=sum(one.series is not None for one in rows.values()),
            total=len(self._measured),
            series=[one.series for one in self._measured if one.series is not None],
            running=is_running(self._home),
        )


def _has(entry: Entry, text: str) -> bool:
    inside = entry.words or f"{entry.name} {entry.command}".lower()
    return all(word in inside for word in text.lower().split())


def _cursor_row(keys: Sequence[Key], query: BenchmarkQuery, same: bool) -> int | None:
    """The cursor's row if it still exists; else the first row if the filter changed."""
    if query.cursor is None:
        return None if same else 0
    return next((row for row, key in enumerate(keys) if key == query.cursor), 0)


_VERBS = ("matrix", "claims")


def is_running(home: Home) -> bool:
    """Whether a benchmark runs in this home, wherever it was started."""
    return locks.is_held(home.path / "bench.lock")


def can_start(command: str) -> bool:
    """Whether it is a command of `kgops bench` that measures."""
    words = _words(command)
    return words[:2] == ["kgops", "bench"] and words[2:3] != [] and words[2] in _VERBS


def start(home: Home, conn: Connection, bench: int | None, command: str) -> subprocess.Popen[bytes]:
    """Starts the command, in the folder in which the benchmark was started. It outlives this process; what it prints
    is in the home's bench.log."""
    if is_running(home):
        raise Usage("another benchmark is running in this home", "press s to stop it")
    known = benches.get(conn, bench) if bench is not None else None
    folder = Path(known.plan.get("cwd") or ".") if known is not None else Path()
    if not folder.is_dir():
        raise Usage(f"{folder} no longer exists", f"in the folder of the job file:  {command}")
    output = open_regular(home.path / "bench.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kgops", *_words(command)[1:]],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, "KGOPS_HOME": str(home.path)},
            start_new_session=True,
        )
    finally:
        os.close(output)


def trouble(home: Home) -> str:
    """The error that the last started benchmark printed, or its last line."""
    try:
        lines = (home.path / "bench.log").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((one for one in lines if one.startswith("Error: ")), lines[-1] if lines else "")


def stop(home: Home, conn: Connection) -> str:
    """Stops the current run of the running benchmark, which ends with it. Finished pairs are kept."""
    if not is_running(home):
        raise Usage("no benchmark is running in this home")
    for heading in benches.headings(conn):
        if heading.ended_at is not None:
            continue
        wanted = run_list.Filter(states=runs.UNFINISHED, tag=f"bench-{heading.number}")
        for run in run_list.page(conn, wanted):
            stop_run(home, conn, run, None)
            return f"asked benchmark {heading.number} to stop, by its run {run.id}; x continues it"
    raise Usage("the benchmark is between two of its runs", "press s again")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []
