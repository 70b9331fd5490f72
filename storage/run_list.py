"""Lists of runs: filter, order and pages."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from storage import search, series
from storage.runs import COLUMNS, FIELDS, MAY_HAVE_PAUSED, OF_ATTEMPTS, SELECT_RUN, Run, runs_of

# Computed columns to sort and filter by.
_NOW = "(julianday('now') - 2440587.5) * 86400"
_ONE_ATTEMPT = f"coalesce(run.ended_at, {_NOW}) - run.started_at"
_ATTEMPTS = f"SELECT sum(coalesce(ended_at, {_NOW}) - started_at) FROM attempt WHERE attempt.run = run.id"
COMPUTED = {
    # As Run.took_until.
    "time": f"(CASE WHEN {MAY_HAVE_PAUSED} THEN coalesce(({_ATTEMPTS}), {_ONE_ATTEMPT}) ELSE {_ONE_ATTEMPT} END)",
    "peak_gpu": "run.peak_gpu_mib",
    "peak_host": "run.peak_host_mib",
    **{name: f"({OF_ATTEMPTS[name]})" for name in FIELDS if name in OF_ATTEMPTS},
}
SORTABLE = frozenset((*COLUMNS, *COMPUTED))


class Filter(NamedTuple):
    """A filter of runs; every value is bound as a parameter, columns come from an allow-list."""

    states: tuple[str, ...] = ()
    workload: str | None = None
    tag: str | None = None
    words: str | None = None
    since: float | None = None
    conditions: tuple[search.Condition, ...] = ()  # from a filter's text: storage/conditions.py


EVERYTHING = Filter()


def page(
    conn: sqlite3.Connection,
    wanted: Filter = EVERYTHING,
    *,
    sort: str = "id",
    metric: str | None = None,
    descending: bool = True,
    limit: int = 50,
    after: int | None = None,
) -> list[Run]:
    """One page of runs; `after` is the number of the previous page's last run (keyset paging).

    `metric` sorts by that metric: values of the test first. Runs without a value come last in either direction.
    """
    order = _Order.by(sort, metric, descending)
    where, values = _conditions(conn, wanted)
    if after is not None:
        row = conn.execute(order.value, (*order.bound, after)).fetchone()
        if row is None and order.column != "run.id":
            return []
        clause, bound = order.behind(after, is_null=row is not None and row[0] is None)
        where.append(clause)
        values += bound
    clause = " WHERE " + " AND ".join(where) if where else ""
    statement = f"{SELECT_RUN}{order.join}{clause} ORDER BY {order.sql} LIMIT ?"
    rows = conn.execute(statement, (*order.bound, *values, limit)).fetchall()
    return runs_of(rows)


def ordered(
    conn: sqlite3.Connection,
    wanted: Filter = EVERYTHING,
    *,
    sort: str = "id",
    metric: str | None = None,
    descending: bool = True,
) -> Iterator[int]:
    """The numbers of all matching runs, in the order of `page`."""
    order = _Order.by(sort, metric, descending)
    where, values = _conditions(conn, wanted)
    clause = " WHERE " + " AND ".join(where) if where else ""
    statement = f"SELECT run.id FROM run{order.join}{clause} ORDER BY {order.sql}"
    for row in conn.execute(statement, (*order.bound, *values)):
        yield row[0]


def of_numbers(conn: sqlite3.Connection, numbers: Sequence[int]) -> list[Run]:
    """The runs with these numbers, in this order, without deleted ones."""
    by_number: dict[int, Run] = {}
    for first in range(0, len(numbers), _AT_ONCE):
        block = tuple(numbers[first : first + _AT_ONCE])
        marks = ", ".join("?" * len(block))
        rows = conn.execute(f"{SELECT_RUN} WHERE id IN ({marks})", block)
        by_number |= {run.id: run for run in runs_of(rows)}
    return [by_number[number] for number in numbers if number in by_number]


_AT_ONCE = 500  # values that one statement binds


class _Order(NamedTuple):
    column: str
    join: str
    bound: tuple[str, ...]
    descending: bool
    rank: str = ""  # sorts before the column

    @classmethod
    def by(cls, sort: str, metric: str | None, descending: bool) -> _Order:
        if metric is not None:
            which, name = series.split(metric)
            values, bound = series.values_of(name, which)
            join = (
                f" LEFT JOIN ({values}) AS ranked ON ranked.run = run.id"
                " LEFT JOIN score AS test ON test.name = ? AND test.run = run.id"
            )
            # `mrr` is of the test where there is one, otherwise of the validation, which is no match for it.
            is_test = "test.value IS NOT NULL AND ranked.value IS NOT NULL"
            rank = f"{'' if descending else 'NOT '}({is_test})"
            return cls("ranked.value", join, (*bound, f"test_{name}"), descending, rank)
        if sort not in SORTABLE:
            raise ValueError(f"cannot sort by {sort!r}")
        return cls(COMPUTED.get(sort, f"run.{sort}"), "", (), descending)

    @property
    def sql(self) -> str:
        direction = "DESC" if self.descending else "ASC"
        if self.column == "run.id":
            return f"run.id {direction}"
        rank = f"{self.rank} {direction}, " if self.rank else ""
        return f"{rank}{self.column} {direction} NULLS LAST, run.id {direction}"

    @property
    def value(self) -> str:
        return f"SELECT {self.column} FROM run{self.join} WHERE run.id = ?"

    def behind(self, number: int, *, is_null: bool) -> tuple[str, list[Any]]:
        past = "<" if self.descending else ">"
        if self.column == "run.id":
            return f"run.id {past} ?", [number]
        if is_null:
            return f"({self.column} IS NULL AND run.id {past} ?)", [number]
        # The value is read within the statement: the time of a run that goes on would be another one before it.
        key = ", ".join(filter(None, (self.rank, self.column, "run.id")))
        place = f"SELECT {key} FROM run{self.join} WHERE run.id = ?"
        return f"(({key}) {past} ({place}) OR {self.column} IS NULL)", [*self.bound, number]


def _conditions(conn: sqlite3.Connection, wanted: Filter) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []
    if wanted.states:
        where.append(f"run.state IN ({', '.join('?' * len(wanted.states))})")
        values += wanted.states
    if wanted.workload is not None:
        where.append("run.workload = ?")
        values.append(wanted.workload)
    if wanted.tag is not None:
        where.append("run.id IN (SELECT run FROM tag WHERE tag = ?)")
        values.append(wanted.tag)
    if wanted.since is not None:
        where.append("run.submitted_at >= ?")
        values.append(wanted.since)
    words = [search.condition(conn, word) for word in (wanted.words or "").split()]
    for condition in (*wanted.conditions, *words):
        where.append(condition.where())
        values += condition.values
    return where, values
