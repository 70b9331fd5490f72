"""Splits flights into training flights and a held-out flight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kgops.errors import BadInput
from kgops.options.reading import nearest
from kgops.regression.flights import Flight

__all__ = ["Split", "hold_out", "leave_one_out"]


@dataclass(frozen=True, eq=False)
class Split:
    """`train` has all flights except `held_out`."""

    train: tuple[Flight, ...]
    held_out: Flight


def hold_out(flights: Sequence[Flight], name: str | None = None) -> Split:
    """Holds out the flight `name`, or else the last by name."""
    if len(flights) < 2:
        raise BadInput(
            f"{flights[0].path.parent} has one flight; training needs at least two, since one is held out.",
            hint="`kgops data flights --make DIR` writes several.",
        )
    held = find_flight(flights, name) if name else flights[-1]
    return Split(tuple(flight for flight in flights if flight is not held), held)


def leave_one_out(flights: Sequence[Flight]) -> Iterator[Split]:
    """Holds out each flight once, in order."""
    for flight in flights:
        yield hold_out(flights, flight.name)


def find_flight(flights: Sequence[Flight], name: str) -> Flight:
    by_name = {flight.name: flight for flight in flights}
    if name not in by_name:
        raise BadInput(f"{flights[0].path.parent} has no flight {name!r:.60}{nearest(name, by_name)}.")
    return by_name[name]
