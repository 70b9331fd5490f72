"""The list of all runs: filtered, sorted, read block by block, deleted."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from kgops.errors import KgopsError, Usage
from kgops.jobs import toml
from kgops.jobs.files import read_named, write_durably
from kgops.jobs.option_reading import nearest
from kgops.settings import Home, make_home
from storage import conditions, filters, run_list, runs, series
from storage.database import Connection
from storage.filters import Term

BLOCK = 200


class Sort(NamedTuple):
    """A column or a metric to sort by; runs without a value come last."""

    by: str = "id"
    metric: bool = False
    descending: bool = True


NEWEST_FIRST = Sort()


class Listing:
    """The runs that match a filter, in order, as of the first `show` or the last `refresh`.

    Their order is kept until the next `refresh` or another sort. So a key press evaluates only the filter.
    """

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._version: tuple[int, int] | None = None
        self._order: tuple[Sort, Sequence[int]] | None = None
        self.terms: tuple[Term, ...] = ()
        self.sort = NEWEST_FIRST
        self.existing: Sequence[int] = ()  # all runs, ascending
        self.numbers: Sequence[int] = ()

    @property
    def total(self) -> int:
        return len(self.existing)

    def show(self, terms: Iterable[Term], sort: Sort | None = None) -> None:
        self.terms = tuple(terms)
        self.sort = sort or self.sort
        with conditions.read_snapshot(self._conn):
            if self._version is None:
                self._version, self._order = conditions.version(self._conn), None
                self.existing = array("q", run_list.ordered(self._conn, descending=False))
            order = self._in_order()
            self.numbers = array("q", filter(self._matching().__contains__, order)) if self.terms else order

    def refresh(self) -> bool:
        """Rereads the runs if another process has committed since. False: nothing has changed."""
        if conditions.version(self._conn) == self._version:
            return False
        self._version = None
        self.show(self.terms)
        return True

    def position(self, number: int) -> int | None:
        """A run's position, so that the cursor stays on it under another filter or order."""
        try:
            return self.numbers.index(number)
        except ValueError:
            return None

    def _matching(self) -> Collection[int]:
        wanted = run_list.Filter(conditions=conditions.compiled(self._conn, self.terms))
        return frozenset(run_list.ordered(self._conn, wanted))

    def _in_order(self) -> Sequence[int]:
        """Only the runs known at the last refresh: others may have been added since."""
        if self.sort.by == "id":
            return self.existing[::-1] if self.sort.descending else self.existing
        if self._order is None or self._order[0] != self.sort:
            by, is_metric, descending = self.sort
            column, metric = ("id", by) if is_metric else (by, None)
            numbers = run_list.ordered(self._conn, sort=column, metric=metric, descending=descending)
            newest = self.existing[-1] if self.existing else 0
            self._order = self.sort, array("q", (number for number in numbers if number <= newest))
        return self._order[1]


def strictly(text: str) -> tuple[Term, ...]:
    """The terms of a complete filter. Raises Usage with the first problem and its position."""
    reading = filters.read(text)
    if reading.troubles:
        trouble = reading.troubles[0]
        raise Usage(f"filter, character {trouble.at + 1}: {trouble.message}", trouble.hint)
    return reading.terms


# A list can be sorted by these before the first run has reported them, as right after a sweep was started.
_METRICS_OF_ANY_TRAINING = ("mrr", "test_mrr", "valid_mrr", "loss")


def sort_by(conn: Connection, name: str, *, descending: bool = True) -> Sort:
    """The sort by a column or metric of this name. Raises Usage where there is neither."""
    if name in run_list.SORTABLE:
        return Sort(name, descending=descending)
    metrics = (*series.names(conn), *_METRICS_OF_ANY_TRAINING)
    if name not in metrics and series.split(name)[1] not in metrics:
        raise Usage(f"cannot sort by {name!r:.60}{nearest(name, dict.fromkeys((*runs.COLUMNS, *metrics)))}")
    return Sort(name, metric=True, descending=descending)


def unknown_metrics(conn: Connection, names: Collection[str]) -> list[str]:
    """A message for each metric that no run has."""
    known = dict.fromkeys(series.names(conn)) if names else {}
    plain_names = {name: series.split(name)[1] for name in names}
    return [
        f"no run has a metric {name!r:.60}{nearest(plain_names[name], known)}"
        for name in names
        if plain_names[name] not in known
    ]


class Deleted(NamedTuple):
    run: int
    done: bool
    why: str | None  # the reason why it was not deleted, or what is left of it


def delete_marked(home: Home, conn: Connection, numbers: Iterable[int]) -> Iterator[Deleted]:
    """Deletes ended runs with their folders, one per iteration; reports why others were not deleted."""
    for number in numbers:
        run = runs.get(conn, number)
        if run is None:
            yield Deleted(number, False, "it was deleted already")
        elif not run.ended:
            yield Deleted(number, False, f"it is {run.state}: stop it first")
        else:
            yield _deleted(home, conn, number)


def _deleted(home: Home, conn: Connection, number: int) -> Deleted:
    from kgops.supervisor.deletion import delete_run  # half of a listing's imports, and seldom needed

    try:
        left = delete_run(home, conn, number)
    except KgopsError as error:
        return Deleted(number, False, error.message)
    return Deleted(number, True, None if left is None else f"its files are left in {left}")


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_LARGEST, _MOST, _LONGEST = 1 << 16, 100, 1000


def read(home: Home) -> dict[str, str]:
    """Filters by name, in their order; Usage if the file is not valid."""
    path = home.path / "filters.toml"
    if not path.exists():
        return {}
    try:
        table = toml.loads(read_named(path, "list of filters", _LARGEST))
    except ValueError as error:
        raise Usage(f"{path} is not valid TOML: {error}", "correct it, or remove it") from error
    wrong = [name for name, text in table.items() if not isinstance(text, str) or not _NAME.fullmatch(name)]
    if wrong:
        raise Usage(f'{path}: {wrong[0]!r:.60} is not a line name = "filter"', "correct it, or remove it")
    return table


def text_of(home: Home, name: str) -> str:
    """The filter of that name; Usage if there is none."""
    saved = read(home)
    if name not in saved:
        raise Usage(
            f"no filter is saved as {name!r:.60}{nearest(name, saved)}", "key F of the history saves one"
        )
    return saved[name]


def save(home: Home, name: str, text: str) -> None:
    """Saves the filter, replaces the one of that name, or drops it if the text is empty."""
    if not _NAME.fullmatch(name):
        raise Usage(f"{name!r:.60} is not a name: letters, digits, dots and hyphens, at most 40")
    text = text.strip()
    if len(text) > _LONGEST:
        raise Usage(f"a filter of {len(text):,} characters is not saved", f"at most {_LONGEST:,} are")
    strictly(text)
    make_home(home)
    saved = {**read(home), name: text}
    if not text:
        del saved[name]
    if len(saved) > _MOST:
        raise Usage(f"{_MOST} filters are saved already", "drop one: key F with an empty filter, its name")
    write_durably(home.path / "filters.toml", toml.dumps(saved).encode())
