"""Reads the list of benchmarks and their details for the benchmarks screen. It reads the database, so it blocks."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kgops.errors import Usage
from kgops.experiments.benchmark_results import FAILED, ResultReader, Series, matching, seconds_of
from kgops.experiments.fingerprint import machine_line
from kgops.experiments.summary import Row, rows
from kgops.experiments.trial_result import Spread
from kgops.jobs.files import open_regular
from kgops.jobs.option import word_of
from kgops.settings import Home
from kgops.supervisor import locks
from kgops.supervisor.control import stop_run
from storage import benches, conditions, run_list, runs
from storage.database import Connection, explained, open_reader
from storage.errors import DatabaseMissing

if TYPE_CHECKING:
    from kgops.experiments.claims import Page


MEASURE_OPTIONS = "kgops bench claims --quick"  # what that page is measured with
Key = str | tuple[str, str]  # "options", or name and machine


class Entry(NamedTuple):
    """All results of a benchmark on one kind of machine, or without a series the page on which options pay here."""

    name: str
    command: str
    series: Series | None = None

    @property
    def key(self) -> Key:
        return "options" if self.series is None else (self.name, self.series.hardware)


_PAGE_OF_OPTIONS = Entry("Which options pay here", "kgops bench show claims")
_WORDS_OF_OPTIONS = f"{_PAGE_OF_OPTIONS.name} {_PAGE_OF_OPTIONS.command}".lower()


class Curve(NamedTuple):
    name: str
    points: tuple[tuple[float, Spread], ...]


class Detail(NamedTuple):
    """Everything known about an entry; missing fields are empty."""

    name: str
    command: str
    machine: str = ""  # its fingerprint in one line
    state: str = ""
    series: Series | None = None  # its results over time
    first: Row | None = None  # the baseline
    rows: tuple[Row, ...] = ()
    curves: tuple[tuple[str, tuple[Curve, ...]], ...] = ()  # by varied option
    options: Page | None = None  # which options pay here


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
        self._measured: list[Series] = []
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
        with self._one_at_a_time, explained(self._home.database):
            conn = self._open()
            return None if conn is None else _detail(conn, one)

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
        self._measured = self._results.read(conn)

    def _page(self, query: BenchmarkQuery) -> BenchmarkPage:
        words = query.text.lower().split()
        found = matching(_ordered(self._measured, query.sort, descending=query.descending), words)
        entries = [Entry(one.name, one.newest.command, one) for one in found]
        if self._measured and all(word in _WORDS_OF_OPTIONS for word in words):
            entries.insert(0, _PAGE_OF_OPTIONS)
        same = self._shown is not None and self._shown[:3] == query[:3]
        self._shown = query
        page = BenchmarkPage(
            query,
            {one.key: one for one in entries},
            shown=len(found),
            total=len(self._measured),
            series=self._measured,
            running=is_running(self._home),
        )
        if query.cursor is None:
            return page if same else page._replace(cursor_row=0)
        return page._replace(cursor_row=page.row_of(query.cursor) or 0)


def _ordered(series: Sequence[Series], by: str, *, descending: bool) -> list[Series]:
    """By name, fastest, seconds, change, device or at; those without a value are last in both orders."""
    valued = [(_value(one, by), one) for one in series]
    known = [pair for pair in valued if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return [one for _, one in known] + [one for value, one in valued if value is None]


def _value(series: Series, by: str) -> Any:
    if by in ("name", "device"):
        return getattr(series, by).lower()
    if by == "at":
        return series.results[-1].at
    fastest = series.fastest
    if fastest is None:
        return None
    if by == "fastest":
        return fastest.row.variant.lower()
    if by == "seconds":
        return seconds_of(fastest.row).median
    before = series.than_before(fastest.row.variant)
    return None if before is None else before[1].factor


def _detail(conn: Connection, entry: Entry) -> Detail:
    if entry.series is None:
        from kgops.experiments.claims import (
            page,
        )  # what plans runs comes with it; a first paint does not wait

        return Detail(entry.name, entry.command, options=page(conn))
    newest = entry.series.newest
    detail = Detail(entry.name, entry.command, machine_line(conn, newest.machine), series=entry.series)
    bench = benches.get(conn, newest.bench)
    if bench is None:
        return detail._replace(state="it is no longer in the record")
    table = rows(conn, bench) if bench.plan.get("variants") else []
    state = entry.series.results[-1].state
    return detail._replace(
        state="the newest benchmark failed" if state == FAILED else state,
        first=next(iter(table), None),
        rows=tuple(table[1:]),
        curves=tuple(_curves_by_size(table, bench.plan)),
    )


def _curves_by_size(table: Sequence[Row], plan: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Curve, ...]]]:
    """Curves of seconds for each varied name with numbers: one for each combination of the other varied options."""
    varied = {one["name"]: one.get("varied") or {} for one in plan["variants"]}
    for axis in dict.fromkeys(name for setting in varied.values() for name in setting):
        groups: dict[str, list[tuple[float, Spread]]] = {}
        for row in table:
            setting = varied.get(row.variant, {})
            size = setting.get(axis)
            if row.seconds is None or isinstance(size, bool) or not isinstance(size, (int, float)):
                continue
            rest = " ".join(f"{name}={word_of(value)}" for name, value in setting.items() if name != axis)
            groups.setdefault(rest or "time", []).append((float(size), row.seconds))
        if curves := [Curve(name, tuple(points)) for name, points in groups.items() if len(points) > 1]:
            yield axis, tuple(curves)


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
