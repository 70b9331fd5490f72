"""What the list of benchmarks shows: a row for each, or for each single value, and words on what was asked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

from kgops.cli.output import amount, padded
from kgops.experiments.benchmark_list import OVERVIEW
from kgops.jobs.text import one_line
from kgops.jobs.timestamps import OUT_OF_RANGE, is_timestamp
from screens.rows import Column, Columns, Piece, Row, said, title
from storage.metric_query import Metric

if TYPE_CHECKING:
    from kgops.experiments.benchmark_list import Entry
    from kgops.experiments.metric_query import MetricPage, MetricQuery

__all__ = ["FIRST", "Shown", "empty_rows", "filter_row", "heading", "sorts", "title_row"]

_WEEK_S = 6 * 86_400.0  # a day's name means one day
_WIDEST = 170
_NOTHING = (
    "Nothing was measured yet. In any shell of this machine, best while it is quiet:",
    "",
    "kgops bench claims --quick  what was claimed, beside what is measured here",
    "kgops bench matrix JOB --vary batch_size=256,512  settings of a job, compared",
)
_NONE_LIKE_IT = (
    "Nothing like that was measured on this machine.",
    "",
    "/  changes the filter; without one all is shown",
    "M  shows what other machines, versions and commits measured, too",
)
_HINT = "/ shows only some: words, on:KEY of a machine · tab to what stands beside"


class _Sortable(NamedTuple):
    column: Column
    by: str
    descending: bool = False


_ENTRIES = (
    Column("BENCHMARK", 38, grows=True),
    Column("measured", 10),
    Column("metrics", 7, right=True),
    Column("machine", 12),
)
_METRICS = (
    _Sortable(Column("METRIC", 26, grows=True), "subject"),
    _Sortable(Column("of", 10), "unit"),
    _Sortable(Column("value", 13, right=True), "value", True),
    _Sortable(Column("n", 4, right=True), "n", True),
    _Sortable(Column("measured", 10), "id", True),
    _Sortable(Column("bench", 5, right=True), "bench", True),
    _Sortable(Column("name", 30), "name"),
)
_OF_MACHINE = Column("machine", 12)
FIRST = {one.by: one.descending for one in _METRICS}


def title_row(asked: MetricQuery, answer: MetricPage | None, paused: bool, width: int) -> Row:
    name = "benchmarks  every value" if asked.single else "benchmarks"
    right = "" if answer is None or answer.machine is None else _count(answer)
    return title(name, right, width, *([Piece("paused", "warn")] if paused else []))


def _count(answer: MetricPage) -> str:
    """How many, and whose."""
    asked = answer.asked
    if asked.machine is not None:
        return f"{answer.measured:,} on {one_line(asked.machine, 12)}…"
    if asked.all_machines:
        return f"{answer.measured:,} all machines"
    elsewhere = f" · {answer.other_machines:,} elsewhere" if answer.other_machines else ""
    return f"{answer.measured:,} on {one_line(answer.host or answer.machine or '', 24)}{elsewhere}"


def sorts(width: int) -> list[str]:
    """What values can be sorted by of what is in sight, from the left."""
    columns = _metric_columns(width, machines=False)
    return [one.by for one in _METRICS if columns.width_of(one.column.head)]


def heading(asked: MetricQuery, width: int) -> Row:
    if not asked.single:
        return _entry_columns(width, asked.beyond).heading()
    columns = _metric_columns(width, asked.beyond)
    pieces: list[Piece] = []
    for one in _METRICS:
        across = columns.width_of(one.column.head)
        if not across:
            break
        sorted_by = asked.sort == one.by
        text = one.column.head + (("▼" if asked.descending else "▲") if sorted_by else "")
        tone = "accent" if sorted_by else "head" if one is _METRICS[0] else "dim"
        pieces += [Piece("  ")] if pieces else []
        pieces.append(Piece(padded(text, across, right=one.column.right), tone, f"screen.sort({one.by!r})"))
    if columns.width_of(_OF_MACHINE.head):
        pieces += [Piece("  "), Piece(_OF_MACHINE.head, "dim")]
    return Row(tuple(pieces))


class Shown(Sequence[Row]):
    """All of an answer as rows; each is made when it is looked at, and empty until it was read."""

    def __init__(self, answer: MetricPage, width: int) -> None:
        self._answer = answer
        columns = _metric_columns if answer.asked.single else _entry_columns
        self._columns = columns(width, answer.asked.beyond)
        self._made: dict[object, Row] = {}
        self._now = time.time()

    def __len__(self) -> int:
        return len(self._answer.keys)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        key = self._answer.keys[at]
        if key not in self._made:
            self._made[key] = self._row(key, self._answer.rows.get(key))
        return self._made[key]

    def _row(self, key: object, one: Entry | Metric | None) -> Row:
        if one is None:
            return Row((Piece(" "),), key)
        if isinstance(one, Metric):
            return self._columns.row(self._of_metric(one), key)
        return self._columns.row(self._of_entry(one), key)

    def _of_entry(self, one: Entry) -> list[Piece]:
        known = one.machine is not None or one.key == OVERVIEW
        when = Piece("not here" if one.machine is None else _when(one.at, self._now), "dim")
        if one.key == OVERVIEW:
            when = Piece("")
        return [
            Piece(one.name, "text" if known else "dim"),
            when if one.ended else Piece("unfinished", "warn"),
            Piece(f"{one.metrics:,}" if one.metrics else "", "dim"),
            self._machine(one.machine),
        ]

    def _of_metric(self, one: Metric) -> list[Piece]:
        bench, _, of = one.name.rpartition(": ")  # as a benchmark's values are called
        return [
            Piece(one.subject),
            Piece(of if bench else "", "dim"),
            Piece(amount(one.value, one.unit)),
            Piece(str(one.n), "dim"),
            Piece(_when(one.at, self._now), "dim"),
            Piece("" if one.bench is None else str(one.bench), "dim"),
            Piece(bench or one.name, "dim"),
            self._machine(one.machine),
        ]

    def _machine(self, key: str | None) -> Piece:
        """Another one than the one looked at is told by its tone, and by its name."""
        return Piece(key or "", "dim" if key == self._answer.machine else "warn")


def filter_row(text: str, width: int) -> Row:
    if not text.strip():
        return said(_HINT, width, "dim")
    return Row((Piece("/ ", "accent"), *said(text, width - 2, "strong").pieces))


def empty_rows(answer: MetricPage, width: int) -> list[Row]:
    """What to do where there is nothing to see."""
    return [said(line, width) for line in (_NONE_LIKE_IT if answer.anything else _NOTHING)]


def _entry_columns(width: int, machines: bool) -> Columns:
    return Columns(_ENTRIES if machines else _ENTRIES[:-1], min(width, _WIDEST))


def _metric_columns(width: int, machines: bool) -> Columns:
    columns = [one.column for one in _METRICS]
    return Columns([*columns, _OF_MACHINE] if machines else columns, min(width, _WIDEST))


def _when(at: float, now: float) -> str:
    """As much as tells it from others: the time, the day of a week, the date."""
    if not is_timestamp(at):
        return OUT_OF_RANGE
    when, today = time.localtime(at), time.localtime(now)
    if when[:3] == today[:3]:
        return time.strftime("%H:%M", when)
    if 0 < now - at < _WEEK_S:
        return time.strftime("%a %H:%M", when)
    return time.strftime("%d %b" if when[0] == today[0] else "%b %Y", when)
