"""List of benchmarks: which options pay here, and paired comparisons by machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kgops.experiments.benchmark_results import Series, seconds_of

OPTIONS = "options"  # key of the page on which options pay here
MEASURE_OPTIONS = "kgops bench claims --quick"  # what that page is measured with
Key = str | tuple[str, str]  # OPTIONS, or name and machine


class Entry(NamedTuple):
    key: Key
    name: str
    command: str
    at: float = 0.0
    ended: bool = True
    device: str = ""  # GPU or processor
    words: str = ""  # what a filter looks in
    series: Series | None = None  # None: OPTIONS


def of_series(one: Series) -> Entry:
    """All results of a benchmark on one kind of machine."""
    last, newest = one.results[-1], one.newest
    return Entry(
        (one.name, one.hardware),
        *(one.name, newest.command, last.at, last.ended),
        *(one.device, one.words, one),
    )


SORTS = ("name", "fastest", "seconds", "change", "device", "at")


def ordered(entries: Sequence[Entry], by: str, *, descending: bool) -> list[Entry]:
    """By a key of `SORTS`; entries without a value are last in both orders."""
    valued = [(one, _value(one, by)) for one in entries]
    known = sorted(
        ((one, value) for one, value in valued if value is not None),
        key=lambda pair: pair[1],
        reverse=descending,
    )
    return [one for one, _ in known] + [one for one, value in valued if value is None]


def _value(entry: Entry, by: str) -> Any:
    if by in ("name", "device"):
        return getattr(entry, by).lower()
    if by == "at":
        return entry.at
    fastest = entry.series.fastest if entry.series is not None else None
    if entry.series is None or fastest is None:
        return None
    if by == "fastest":
        return fastest.row.variant.lower()
    if by == "seconds":
        return seconds_of(fastest.row).median
    before = entry.series.than_before(fastest.row.variant)
    return None if before is None else before[1].factor


def options() -> Entry:
    """The entry whose detail says which options pay here."""
    return Entry(OPTIONS, "Which options pay here", "kgops bench show claims")
