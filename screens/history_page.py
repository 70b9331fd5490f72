"""Rows of the history screen: sortable columns, one row per run, filter and completions."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, overload

from kgops.jobs.text import one_line
from kgops.present.formats import duration, width_of
from kgops.present.rows import Column, Columns, Piece, Row, text_row
from kgops.present.wording import metric_of, short_amount, short_time, sign_of
from screens import sorting
from screens.sorting import Sortable
from storage.filters import FIELDS, GROUPS
from storage.runs import STATES

if TYPE_CHECKING:
    from screens.history_query import Page, Query
    from storage.runs import Run

_MARK = "●"
_ROOMY, _ROOMY_TEXT = 131, 24  # from here label and why are wider, before profiles are shown
_WIDEST = 170  # columns; longer rows are hard to follow
_NO_RUNS = (
    "No runs yet.",
    "",
    "n          choose a job and see its plan",
    "kgops run  in a shell: run the demo",
)
_NONE_LIKE_IT = (
    "No run matches the filter.",
    "",
    "/  edit the filter; an empty filter shows all runs",
)
_HINT = "/ filter: state:failed mrr>0.3 gpu:t4 tag:paper since:7d words"


_SORTABLE = (
    Sortable(Column("RUN", 8, right=True), "id", True),
    Sortable(Column(" ", 1), "state"),
    Sortable(Column("workload", 9), "workload"),
    Sortable(Column("label", 17, grows=True), "label"),
    Sortable(Column("submitted", 10), "submitted_at", True),
    Sortable(Column("took", 7, right=True), "time", True),
    Sortable(Column("metric", 14), "metric_value", True),
    Sortable(Column("GPU MiB", 8, right=True), "peak_gpu_mib", True),
    Sortable(Column("host MiB", 8, right=True), "peak_host_mib", True),
    Sortable(Column("why", 19, grows=True), "reason"),
    Sortable(Column("profile", 9), "profile"),
    Sortable(Column("tags", 14), None),
)
FIRST = {one.by: one.descending for one in _SORTABLE if one.by is not None}


# What people may type beside names of columns in the database: what they see.
HEADS = {
    one.column.head.strip(): one.by for one in _SORTABLE if one.by is not None and one.column.head.strip()
}


def sorts(width: int) -> list[str]:
    """Sort keys of the visible columns, from the left."""
    return sorting.sorts(_SORTABLE, _columns(width))


def _columns(width: int) -> Columns:
    columns = [one.column for one in _SORTABLE]
    if width >= _ROOMY:
        columns = [one._replace(width=_ROOMY_TEXT) if one.grows else one for one in columns]
    return Columns(columns, min(width, _WIDEST))


def heading(query: Query, metric: str | None, width: int) -> Row:
    """Column heads; the metric's column has the name of the metric that is shown."""
    columns = _columns(width)
    renamed = {}
    if metric is not None:
        renamed["metric"] = _with_its_end(one_line(metric), columns.width_of("metric") - 1), metric
    return sorting.heading(_SORTABLE, columns, query.sort, descending=query.descending, renamed=renamed)


def _with_its_end(name: str, width: int) -> str:
    """Metrics often differ in their last letters alone: `…t_hits_at_10`."""
    return name if width_of(name) <= width else f"…{name[1 - width :]}"


class RunRows(Sequence[Row]):
    """All runs of a page as rows, made when drawn; rows not read yet are empty."""

    def __init__(self, page: Page, marked: Container[int], width: int) -> None:
        self._page, self._marked = page, marked
        self._columns = _columns(width)
        self._rows: dict[int, Row] = {}
        self._now = time.time()

    def __len__(self) -> int:
        return len(self._page.numbers)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        number = self._page.numbers[at]
        if number not in self._rows:
            self._rows[number] = self._row(number, self._page.runs.get(number))
        return self._rows[number]

    def _row(self, number: int, run: Run | None) -> Row:
        marked = number in self._marked
        name = Piece(f"{_MARK if marked else ' '}{number:>7}", "accent" if marked else "text")
        if run is None:
            first = self._page.first
            read = number in self._page.numbers[first : first + self._page.query.size]
            return self._columns.row((name, Piece("?" if read else " ", "dim")), number)
        metric = self._page.metric
        value = self._page.values.get(number)
        room = self._columns.width_of("metric")
        metric = metric_of(run, room) if metric is None else "" if value is None else short_amount(value)
        bad = run.state not in ("succeeded", "cancelled")
        return self._columns.row(
            (
                name,
                sign_of(run),
                Piece(run.workload, "dim"),
                Piece(run.label),
                Piece(short_time(run.submitted_at, self._now), "dim"),
                _took(run),
                Piece(metric),
                *(
                    Piece("" if mib is None else f"{mib:,.0f}")
                    for mib in (run.peak_gpu_mib, run.peak_host_mib)
                ),
                Piece(run.reason or "", "bad" if bad and run.ended else "dim"),
                Piece(run.profile or "", "dim"),
                Piece(" ".join(self._page.tags.get(number, ())), "accent"),
            ),
            number,
        )


def _took(run: Run) -> Piece:
    """Duration of an ended run, else its state: a running time would change every second."""
    if not run.ended:
        return Piece("waiting" if run.state == "queued" else "running", "accent")
    seconds = run.took_s
    if seconds is None:
        return Piece("")
    hours = int(seconds) // 3600
    return Piece(duration(seconds) if hours < 24 else f"{hours // 24}d {hours % 24}h")


def empty_rows(page: Page, width: int) -> list[Row]:
    """Hints in place of an empty list."""
    lines = _NONE_LIKE_IT if page.total else _NO_RUNS
    return [text_row(line, width) for line in lines]


def filter_row(text: str, page: Page | None, width: int) -> Row:
    """The filter text, highlighted where part of it is invalid."""
    if not text.strip():
        return text_row(_HINT, width, "dim")
    ignored = ignored_terms(page)
    if ignored is None:
        return Row((Piece("/ ", "accent"), *text_row(text, width - 2, "strong").pieces))
    beside = min(width_of(text), max(width // 3, 1))
    said = text_row(ignored, max(width - beside - 4, 1), "warn").pieces
    return Row((Piece("/ ", "accent"), *text_row(text, beside, "warn").pieces, Piece("  "), *said))


def ignored_terms(page: Page | None) -> str | None:
    """The part of the filter that is ignored or matches nothing, if any."""
    if page is None:
        return None
    parsed_filter = page.parsed_filter
    if parsed_filter.troubles:
        trouble = parsed_filter.troubles[0]
        return (
            f"ignored: {trouble.message}: {trouble.hint}" if trouble.hint else f"ignored: {trouble.message}"
        )
    if parsed_filter.pending:
        return f"ignored: {parsed_filter.pending} has no value yet"
    return page.notes[0] if page.notes else None


def completions(text: str, metrics: Iterable[str], tags: Iterable[str]) -> list[str]:
    """Completions of the last word: filter keys, metrics, states and tags."""
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


def hint_row(page: Page, completions_shown: Sequence[str], width: int) -> Row:
    """Completions, else the filter's error or incomplete term, else the keys."""
    if completions_shown:
        return text_row("  ".join(text.split(" ")[-1] for text in completions_shown), width, "accent")
    if page.parsed_filter.troubles:
        trouble = page.parsed_filter.troubles[0]
        return text_row(f"{trouble.message} — {trouble.hint}", width, "warn")
    if page.notes:
        return text_row(page.notes[0], width, "warn")
    waits = f"{page.parsed_filter.pending} …  " if page.parsed_filter.pending else ""
    return text_row(f"{waits}⏎ apply · esc restore the last filter · tab complete · ↑↓ move", width, "dim")
