"""Query measured values and benchmarks for the results screen: headings, sorted IDs, rows by ID."""

from __future__ import annotations

import sqlite3
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

from storage.database import explained
from storage.measurements import SORTABLE


class Metric(NamedTuple):
    """A measurement with its fingerprint's key instead of the body."""

    number: int
    name: str
    subject: str
    against: str | None
    value: float
    low: float | None
    high: float | None
    n: int
    unit: str
    command: str
    machine: str  # the key of its fingerprint
    at: float
    bench: int | None


class Heading(NamedTuple):
    """A benchmark without its plan."""

    number: int
    name: str
    command: str
    machine: str
    begun_at: float
    ended_at: float | None
    metrics: int


class Batch(NamedTuple):
    """The values that one command measured on one machine, outside of benchmarks."""

    command: str
    machine: str
    last_at: float
    metrics: int


Kind = tuple[str, str, str, str, str, int]  # name, subject, unit, command, machine; 1: outside of benchmarks
WORDS = ("name", "subject", "unit")  # columns of a kind by which values can be sorted
_MACHINE = 4


class Known(NamedTuple):
    """The IDs of all values, ascending, with the kind of each; values of a kind share their texts."""

    numbers: array[int]
    kinds: array[int]
    words: dict[Kind, int]  # kind → its index
    last_at: float | None  # time of the last value: an ID may be reused after a deletion


_COLUMNS = "id, name, subject, against, value, low, high, n, unit, command, fingerprint, at, bench"
_AT_ONCE = 500  # values that one statement binds


def headings(conn: sqlite3.Connection) -> list[Heading]:
    """All benchmarks, newest first."""
    counted = "SELECT bench, count(*) AS metrics FROM measurement WHERE bench IS NOT NULL GROUP BY bench"
    with explained(None):
        rows = conn.execute(
            "SELECT bench.id, name, command, fingerprint, begun_at, ended_at, coalesce(metrics, 0) FROM bench"
            f" LEFT JOIN ({counted}) AS counted ON counted.bench = bench.id ORDER BY bench.id DESC"
        )
        return [Heading(*row) for row in rows]


def batches(conn: sqlite3.Connection, everything: Known) -> list[Batch]:
    """All batches, newest first. Grouped here, since SQLite would sort all values."""
    counts, last = Counter(everything.kinds), dict(zip(everything.kinds, everything.numbers, strict=True))
    groups: dict[tuple[str, str], tuple[int, int]] = {}
    for (*_, command, machine, alone), kind in everything.words.items():
        if alone:
            newest, count = groups.get((command, machine), (0, 0))
            groups[command, machine] = max(newest, last[kind]), count + counts[kind]
    rows = of_numbers(conn, [newest for newest, _ in groups.values()])
    out = [
        Batch(command, machine, rows[newest].at, count)
        for (command, machine), (newest, count) in groups.items()
        if newest in rows
    ]
    return sorted(out, key=lambda one: -one.last_at)


def recent_batches(conn: sqlite3.Connection, among: int = 500) -> list[Batch]:
    """The batches of the newest values, without counts: fast, and needs no index of the values."""
    late = "SELECT command, fingerprint, at FROM measurement WHERE bench IS NULL ORDER BY id DESC LIMIT ?"
    with explained(None):
        rows = conn.execute(
            f"SELECT command, fingerprint, max(at) AS last_at FROM ({late})"
            " GROUP BY command, fingerprint ORDER BY last_at DESC",
            (among,),
        )
        return [Batch(command, machine, last_at, 0) for command, machine, last_at in rows]


def newest_of(conn: sqlite3.Connection, command: str, machine: str, limit: int = 500) -> list[Metric]:
    """The newest measurement of each value by this command on this machine, in order of arrival."""
    return _read(
        conn,
        "WHERE id IN (SELECT max(id) FROM measurement WHERE command = ? AND fingerprint = ? AND bench IS NULL"
        " GROUP BY name, subject) ORDER BY id LIMIT ?",
        (command, machine, limit),
    )


def over_time(conn: sqlite3.Connection, metric: Metric, limit: int = 1000) -> list[tuple[float, float]]:
    """Times and values of the newest measurements of this kind on the same machine, oldest first."""
    with explained(None):
        rows = conn.execute(
            "SELECT at, value FROM measurement WHERE name = ? AND subject = ? AND fingerprint = ?"
            " AND command = ? AND against IS ? ORDER BY id DESC LIMIT ?",
            (metric.name, metric.subject, metric.machine, metric.command, metric.against, limit),
        )
        return [(at, value) for at, value in rows][::-1]


def newest_machine(conn: sqlite3.Connection, host: str) -> str | None:
    """The fingerprint key of the newest measurement on that host; without one, of the newest on any host."""
    on_host = "WHERE fingerprint IN (SELECT key FROM fingerprint WHERE body ->> '$.machine.host' = ?)"
    return _newest(conn, on_host, (host,)) or _newest(conn, "", ())


def of_numbers(conn: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, Metric]:
    """The values with these IDs that still exist."""
    values: dict[int, Metric] = {}
    for first in range(0, len(numbers), _AT_ONCE):
        block = tuple(numbers[first : first + _AT_ONCE])
        marks = ", ".join("?" * len(block))
        values |= {one.number: one for one in _read(conn, f"WHERE id IN ({marks})", block)}
    return values


def ordered(
    conn: sqlite3.Connection, machine: str | None = None, sort: str = "id", descending: bool = True
) -> array[int]:
    """The sorted IDs of all values, or of one machine's."""
    if sort not in SORTABLE:
        raise ValueError(f"cannot sort by {sort!r}")
    where, bound = ("", ()) if machine is None else (" WHERE fingerprint = ?", (machine,))
    direction = "DESC" if descending else "ASC"
    with explained(None):
        rows = conn.execute(
            f"SELECT id FROM measurement{where} ORDER BY {sort} {direction}, id {direction}", bound
        )
        return array("q", (row[0] for row in rows))


def ordered_by_words(everything: Known, machine: str | None, sort: str, descending: bool) -> array[int]:
    """Like `ordered` for a text column: sorts the few kinds, where SQLite would sort every value."""
    at = WORDS.index(sort)
    texts = sorted({kind[at] for kind in everything.words}, reverse=descending)
    ranks = {text: rank for rank, text in enumerate(texts)}
    of_kind = [
        ranks[kind[at]] if machine in (None, kind[_MACHINE]) else len(texts) for kind in everything.words
    ]
    piles = [array("q") for _ in range(len(texts) + 1)]  # the last one: other machines
    numbers, kinds = everything.numbers, everything.kinds
    pairs = (
        zip(reversed(numbers), reversed(kinds), strict=True)
        if descending
        else zip(numbers, kinds, strict=True)
    )
    for number, kind in pairs:
        piles[of_kind[kind]].append(number)
    out = array("q")
    for pile in piles[:-1]:
        out += pile
    return out


def in_order(order: array[int], shown: array[int]) -> array[int]:
    """The IDs of `order` that are in `shown`."""
    is_shown = bytearray(1 + max(max(order, default=0), max(shown, default=0)))
    for number in shown:
        is_shown[number] = 1
    return array("q", compress(order, map(is_shown.__getitem__, order)))


def known(conn: sqlite3.Connection, before: Known | None = None) -> Known:
    """The index of all values. With `before`, reads only new values, unless some were deleted."""
    with explained(None):
        total: int = conn.execute("SELECT count(*) FROM measurement").fetchone()[0]
        if before is not None and _last_time(conn, before) == before.last_at:
            _append_new(conn, before)
            if len(before.numbers) == total:
                return before._replace(last_at=_last_time(conn, before))
        index = Known(array("q"), array("l"), {}, None)
        _append_new(conn, index)
        return index._replace(last_at=_last_time(conn, index))


def with_words(everything: Known, words: Sequence[str], machine: str | None) -> array[int]:
    """The IDs of the values whose texts contain all words, ascending; `machine` is a prefix of the key."""
    lowered = [word.lower() for word in words]
    matches = bytes(
        key.startswith(machine or "") and all(word in " ".join(texts).lower() for word in lowered)
        for *texts, key, _ in everything.words
    )
    return array("q", compress(everything.numbers, map(matches.__getitem__, everything.kinds)))


def _append_new(conn: sqlite3.Connection, index: Known) -> None:
    """Appends the values after the last known one."""
    numbers, kinds, words, _ = index
    for number, *kind in conn.execute(
        "SELECT id, name, subject, unit, command, fingerprint, bench IS NULL FROM measurement WHERE id > ?"
        " ORDER BY id",
        (numbers[-1] if numbers else 0,),
    ):
        numbers.append(number)
        kinds.append(words.setdefault(tuple(kind), len(words)))


def _last_time(conn: sqlite3.Connection, index: Known) -> float | None:
    last = index.numbers[-1] if index.numbers else 0
    row = conn.execute("SELECT at FROM measurement WHERE id = ?", (last,)).fetchone()
    return None if row is None else row[0]


def _newest(conn: sqlite3.Connection, where: str, bound: tuple[str, ...]) -> str | None:
    with explained(None):
        newest_rows = [
            conn.execute(
                f"SELECT {at}, fingerprint FROM {table} {where} ORDER BY id DESC LIMIT 1", bound
            ).fetchone()
            for table, at in (("measurement", "at"), ("bench", "begun_at"))
        ]
    return max((row for row in newest_rows if row is not None), default=(0.0, None))[1]


def _read(conn: sqlite3.Connection, rest: str, bound: tuple[object, ...]) -> list[Metric]:
    with explained(None):
        return [Metric(*row) for row in conn.execute(f"SELECT {_COLUMNS} FROM measurement {rest}", bound)]
