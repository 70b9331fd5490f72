"""The history as it is looked through: what was asked, and what a thread found. All of this waits for a disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kgops.errors import Unavailable, Usage
from kgops.settings import Home
from kgops.views.listing import BLOCK, Listing, Sort, sort_by, unknown_metrics
from storage import filters, reports, runs, scores
from storage.database import Connection, explained, open_reader
from storage.errors import DatabaseMissing
from storage.filters import ParsedFilter
from storage.runs import Run

__all__ = ["Answer", "Asked", "Browser", "ended_of", "write"]


class Asked(NamedTuple):
    """What a person wants to see. Two that are equal have the same answer, until `look` is another number."""

    text: str = (
        ""  # its last word may be half of one, and stays so: a filter shows what it showed while it was typed
    )
    sort: str = "id"
    descending: bool = True
    look: int = 0
    cursor: int | None = None  # the run that the cursor stays with; None: the first
    around: int = 0  # the line in the middle of what is in sight
    size: int = BLOCK  # how many rows are read there

    @property
    def of(self) -> tuple[object, ...]:
        """What decides which runs are shown, in which order."""
        return self.text, self.sort, self.descending, self.look


class Answer(NamedTuple):
    """A moment of the history: the numbers of all runs shown, and the rows of some of them."""

    asked: Asked
    numbers: Sequence[int] = ()
    total: int = 0
    place: int | None = None  # of the cursor; None: where it was
    first: int = 0
    runs: dict[int, Run] = {}  # noqa: RUF012
    tags: dict[int, list[str]] = {}  # noqa: RUF012
    metric: str | None = None  # shown instead of each run's own metric
    values: dict[int, float] = {}  # noqa: RUF012
    reading: ParsedFilter = ParsedFilter(())
    notes: tuple[str, ...] = ()
    took_s: float = 0.0  # to look at the history anew


class Browser:
    """One connection, used by one thread at a time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._conn: Connection | None = None
        self._listing: Listing | None = None
        self._closed = False
        self._before: Answer | None = None
        self._one_at_a_time = threading.Lock()

    def look(self, asked: Asked) -> Answer:
        """Nothing at all before the first run. Raises Usage where there is nothing to sort by of that name."""
        with self._one_at_a_time, explained(self._home.database):
            if self._closed:
                return Answer(asked)
            if self._conn is None:
                try:
                    self._conn = open_reader(self._home.database)
                except DatabaseMissing:
                    return Answer(asked)
                self._listing = Listing(self._conn)
            assert self._listing is not None
            self._before = self._rows(self._ordered(asked, self._listing, self._conn), self._conn)
            return self._before

    def metrics(self) -> list[str]:
        """The names that runs have metrics under: what can be sorted by beside the columns."""
        with self._one_at_a_time, explained(self._home.database):
            return [] if self._conn is None else scores.names(self._conn)

    def tags(self) -> list[str]:
        with self._one_at_a_time, explained(self._home.database):
            return [] if self._conn is None else reports.known_tags(self._conn)

    def close(self) -> None:
        with self._one_at_a_time:
            self._closed = True
            if self._conn is not None:
                self._conn.close()
            self._conn = self._listing = None

    def _ordered(self, asked: Asked, listing: Listing, conn: Connection) -> Answer:
        before = self._before
        if before is not None and before.asked.of == asked.of:
            return before._replace(asked=asked, place=None)
        begin = time.perf_counter()
        sort = _sort(conn, asked)
        reading = filters.read(asked.text, typing=True)
        if before is not None and before.asked.look != asked.look:
            listing.refresh()
        listing.show(reading.terms, sort)
        place = None if asked.cursor is None else listing.position(asked.cursor)
        if place is None and asked.cursor is None:
            place = 0
        metrics = [term.key for term in reading.terms if term.kind == "metric"]
        return Answer(
            asked._replace(around=_around(asked, place, before)),
            listing.numbers,
            listing.total,
            place,
            metric=sort.by if sort.metric else metrics[0] if metrics else None,
            reading=reading,
            notes=tuple(unknown_metrics(conn, reading.terms)) if metrics else (),
            took_s=time.perf_counter() - begin,
        )

    def _rows(self, answer: Answer, conn: Connection) -> Answer:
        """With the rows around what is in sight, as they are now."""
        size = answer.asked.size
        first = max(min(answer.asked.around - size // 2, len(answer.numbers) - size), 0)
        wanted = list(answer.numbers[first : first + size])
        metric = answer.metric
        return answer._replace(
            first=first,
            runs={run.id: run for run in runs.of_numbers(conn, wanted)},
            tags=reports.tags_of_runs(conn, wanted),
            values=scores.of_runs(conn, wanted, metric) if metric is not None else {},
        )


def _around(asked: Asked, place: int | None, before: Answer | None) -> int:
    """The middle of what will be in sight: where runs only came or went, it moves as far as the cursor's run."""
    if place is None:
        return asked.around
    if before is not None and before.asked[:3] == asked[:3] and asked.cursor in before.numbers:
        return asked.around + place - before.numbers.index(asked.cursor)
    return place


def _sort(conn: Connection, asked: Asked) -> Sort:
    return sort_by(conn, asked.sort, descending=asked.descending)


def ended_of(home: Home, numbers: Sequence[int]) -> tuple[list[int], int]:
    """Those of these runs that have ended, and how many have not. A block at a time: all of them may be marked."""
    ended: list[int] = []
    going = 0
    with explained(home.database):
        conn = open_reader(home.database)
        try:
            for start in range(0, len(numbers), BLOCK):
                for run in runs.of_numbers(conn, numbers[start : start + BLOCK]):
                    ended += [run.id] if run.ended else []
                    going += not run.ended
        finally:
            conn.close()
    return ended, going


def write(home: Home, name: str, numbers: Sequence[int], metrics: Sequence[str]) -> Path:
    """These runs in a new file, in the form that its ending names."""
    from kgops.interchange.export import as_csv, as_json

    path = Path(name).expanduser().absolute()
    if path.suffix not in (".csv", ".json"):
        raise Usage(f"{path.name}: the file ends in .csv or .json")
    conn = open_reader(home.database)
    try:
        with path.open("x", newline="", encoding="utf-8", errors="surrogateescape") as file:
            for text in (as_csv if path.suffix == ".csv" else as_json)(conn, numbers, metrics):
                file.write(text)
    except FileExistsError as error:
        raise Usage(f"{path} is there already") from error
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}") from error
    finally:
        conn.close()
    return path
