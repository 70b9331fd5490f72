"""What the history shows: columns that can be sorted by, a row for each run, and words on what was typed."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

from kgops.cli.output import duration, padded
from kgops.jobs.text import one_line
from screens.rows import Column, Columns, Piece, Row, said
from screens.wording import metric_of, short_amount, sign_of
from storage.filters import FIELDS, GROUPS
from storage.runs import STATES

if TYPE_CHECKING:
    from screens.history_query import Answer, Asked
    from storage.runs import Run

__all__ = [
    "FIRST",
    "Shown",
    "completions",
    "empty_rows",
    "filter_row",
    "heading",
    "left_out",
    "sorts",
    "told_row",
]

_MARK = "●"
_WEEK_S = 6 * 86_400.0  # a day's name means one day
_WIDEST = 170  # beyond it a row is too long to follow with the eye
_NO_RUNS = (
    "No runs yet.",
    "",
    "n          chooses what to run, and shows its plan at once",
    "kgops run  in any shell of this machine: the demo",
)
_NONE_LIKE_IT = (
    "No run is like that.",
    "",
    "/  changes the filter; without one all runs are shown",
)
_HINT = "/ shows only some: state:failed mrr>0.3 gpu:t4 tag:paper since:7d words"


class _Sortable(NamedTuple):
    column: Column
    by: str | None  # what the record calls it; None: nothing to sort by
    descending: bool = False  # what people want to see first


_SORTABLE = (
    _Sortable(Column("RUN", 8, right=True), "id", True),
    _Sortable(Column(" ", 1), "state"),
    _Sortable(Column("workload", 9), "workload"),
    _Sortable(Column("label", 17, grows=True), "label"),
    _Sortable(Column("submitted", 10), "submitted_at", True),
    _Sortable(Column("took", 7, right=True), "time", True),
    _Sortable(Column("metric", 14), "metric_value", True),
    _Sortable(Column("peak MiB", 9, right=True), "peak", True),
    _Sortable(Column("profile", 9), "profile"),
    _Sortable(Column("tags", 14), None),
    _Sortable(Column("why", 30), "reason"),
)
FIRST = {one.by: one.descending for one in _SORTABLE if one.by is not None}


def sorts(width: int) -> list[str]:
    """What can be sorted by of what is in sight, from the left."""
    columns = _columns(width)
    return [one.by for one in _SORTABLE if one.by is not None and columns.width_of(one.column.head)]


def _columns(width: int) -> Columns:
    return Columns([one.column for one in _SORTABLE], min(width, _WIDEST))


def heading(asked: Asked, metric: str | None, width: int) -> Row:
    """Which way it is sorted stands at the column; a click sorts by another, or the other way round."""
    sign = "▼" if asked.descending else "▲"
    columns = _columns(width)
    pieces: list[Piece] = []
    for one in _SORTABLE:
        across = columns.width_of(one.column.head)
        if not across:
            break
        name = one.column.head.strip()
        if name == "metric" and metric is not None:
            name = one_line(metric, across - 1)
        by = metric if name == metric else one.by
        sorted_by = asked.sort == by
        text = f"{name}{sign if sorted_by else ''}"
        tone = "accent" if sorted_by else "head" if one.by == "id" else "dim"
        action = f"screen.sort({by!r})" if by is not None else None
        pieces += [Piece("  ")] if pieces else []
        pieces.append(Piece(padded(text, across, right=one.column.right), tone, action))
    return Row(tuple(pieces))


class Shown(Sequence[Row]):
    """All runs of an answer as rows; each is made when it is looked at, and empty until it was read."""

    def __init__(self, answer: Answer, marked: Container[int], width: int) -> None:
        self._answer, self._marked = answer, marked
        self._columns = _columns(width)
        self._made: dict[int, Row] = {}
        self._now = time.time()
        self._today = time.localtime(self._now)

    def __len__(self) -> int:
        return len(self._answer.numbers)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        number = self._answer.numbers[at]
        if number not in self._made:
            self._made[number] = self._row(number, self._answer.runs.get(number))
        return self._made[number]

    def _row(self, number: int, run: Run | None) -> Row:
        marked = number in self._marked
        name = Piece(f"{_MARK if marked else ' '}{number:>7}", "accent" if marked else "text")
        if run is None:
            first = self._answer.first
            read = number in self._answer.numbers[first : first + self._answer.asked.size]
            return self._columns.row((name, Piece("?" if read else " ", "dim")), number)
        metric = self._answer.metric
        value = self._answer.values.get(number)
        room = self._columns.width_of("metric")
        metric = metric_of(run, room) if metric is None else "" if value is None else short_amount(value)
        peak = run.peak_gpu_mib if run.peak_gpu_mib is not None else run.peak_host_mib
        bad = run.state not in ("succeeded", "cancelled")
        return self._columns.row(
            (
                name,
                sign_of(run),
                Piece(run.workload, "dim"),
                Piece(run.label),
                Piece(self._when(run.submitted_at), "dim"),
                _took(run),
                Piece(metric),
                Piece("" if peak is None else f"{peak:,.0f}"),
                Piece(run.profile or "", "dim"),
                Piece(" ".join(self._answer.tags.get(number, ())), "accent"),
                Piece(run.reason or "", "bad" if bad and run.ended else "dim"),
            ),
            number,
        )

    def _when(self, at: float) -> str:
        """As much as tells it from others: the time, the day of a week, the date."""
        when = time.localtime(at)
        if when[:3] == self._today[:3]:
            return time.strftime("%H:%M", when)
        if 0 < self._now - at < _WEEK_S:
            return time.strftime("%a %H:%M", when)
        return time.strftime("%d %b" if when[0] == self._today[0] else "%b %Y", when)


def _took(run: Run) -> Piece:
    """Of what has not ended its state: how long it has taken would be another metric every second."""
    if not run.ended:
        return Piece("waiting" if run.state == "queued" else "running", "accent")
    if run.started_at is None or run.ended_at is None:
        return Piece("")
    seconds = run.ended_at - run.started_at
    hours = int(seconds) // 3600
    return Piece(duration(seconds) if hours < 24 else f"{hours // 24}d {hours % 24}h")


def empty_rows(answer: Answer, width: int) -> list[Row]:
    """What to do where there is nothing to see."""
    lines = _NONE_LIKE_IT if answer.total else _NO_RUNS
    return [said(line, width) for line in lines]


def filter_row(text: str, answer: Answer | None, width: int) -> Row:
    """In another tone where some of it could not be read."""
    if not text.strip():
        return said(_HINT, width, "dim")
    unread = answer is not None and (answer.reading.troubles or answer.reading.pending)
    return Row((Piece("/ ", "accent"), *said(text, width - 2, "warn" if unread else "strong").pieces))


def left_out(answer: Answer | None) -> str | None:
    """What of a filter does not take part in what is shown, or cannot find anything."""
    if answer is None:
        return None
    reading = answer.reading
    if reading.troubles:
        return f"left out: {reading.troubles[0].message}"
    if reading.pending:
        return f"left out: {reading.pending} has no value yet"
    return answer.notes[0] if answer.notes else None


def completions(text: str, metrics: Iterable[str], tags: Iterable[str]) -> list[str]:
    """What the word being typed may become: the name of a key or a metric, a state or a tag."""
    typed = text.split(" ")[-1]
    word = typed.removeprefix("-")
    begin = text.removesuffix(word)
    key, colon, _ = word.partition(":")
    values = {"state": (*STATES, *GROUPS), "tag": tags}
    known = (
        [f"{key}:{value}" for value in values.get(key, ())]
        if colon
        else [*map("{}:".format, FIELDS), *metrics]
    )
    fits = dict.fromkeys(name for name in known if name.startswith(word) and name != word)
    return [begin + name for name in fits]


def told_row(answer: Answer, choice: Sequence[str], width: int) -> Row:
    """What a word may become; what cannot be read, or was only begun; then the keys that go on."""
    if choice:
        return said("  ".join(text.split(" ")[-1] for text in choice), width, "accent")
    if answer.reading.troubles:
        trouble = answer.reading.troubles[0]
        return said(f"{trouble.message} — {trouble.hint}", width, "warn")
    if answer.notes:
        return said(answer.notes[0], width, "warn")
    waits = f"{answer.reading.pending} …  " if answer.reading.pending else ""
    return said(f"{waits}⏎ keeps it · esc takes the one before · tab completes · ↑↓ move", width, "dim")
