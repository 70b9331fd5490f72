"""Rows of the history screen: sortable columns, one row per run, filter and completions."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, overload

from kgops.jobs.text import one_line
from kgops.present.columns import HISTORY, RunTable
from kgops.present.formats import width_of
from kgops.present.rows import Piece, Row, text_row
from kgops.present.wording import short_amount
from storage.filters import FIELDS, GROUPS
from storage.runs import STATES

if TYPE_CHECKING:
    from screens.history_query import Page, Query
    from storage.runs import Run

_MARK = "●"
_ROOMY = ((143, 30), (131, 24))  # from so many columns label and why have so many, before profiles are shown
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


FIRST = {one.column.by: one.column.descending for one in HISTORY if one.column.by is not None}
# What people may type beside names of columns in the database: what they see.
HEADS = {head: one.column.by for one in HISTORY if one.column.by and (head := one.column.head.strip())}


def sorts(width: int) -> list[str]:
    """Sort keys of the visible columns, from the left."""
    return _columns(width).sorts


def _columns(width: int) -> RunTable:
    columns = HISTORY
    text = next((text for least, text in _ROOMY if width >= least), None)
    if text is not None:
        columns = tuple(one.of(text) if one.column.grows else one for one in columns)
    return RunTable(columns, min(width, _WIDEST))


def heading(query: Query, metric: str | None, width: int) -> Row:
    """Column heads; the metric's column has the name of the metric that is shown."""
    columns = _columns(width)
    renamed = {}
    if metric is not None:
        renamed["metric"] = _with_its_end(one_line(metric), columns.width_of("metric") - 1), metric
    return columns.sort_heading(query.sort, descending=query.descending, renamed=renamed)


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
        cells = {"id": name, "tags": Piece(" ".join(self._page.tags.get(number, ())), "accent")}
        if self._page.metric is not None:
            value = self._page.values.get(number)
            cells["metric_value"] = Piece("" if value is None else short_amount(value))
        return self._columns.run_row(run, self._now, number, **cells)


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
