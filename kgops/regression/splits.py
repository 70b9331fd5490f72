"""Which flights are trained on and which is held out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kgops.errors import BadInput
from kgops.jobs.keys import nearest
from kgops.regression.flights import Flight

__all__ = ["Split", "hold_out", "leave_one_out"]


@dataclass(frozen=True, eq=False)
class Split:
    """`train` holds every flight but `held_out`."""

    train: tuple[Flight, ...]
    held_out: Flight


def hold_out(flights: Sequence[Flight], name: str | None = None) -> Split:
    """The flight called `name`, or the last by name, is held out."""
    if len(flights) < 2:
        raise BadInput(
            f"{flights[0].path.parent} has one flight; one is held out, so there must be at least two.",
            hint="`kgops data flights --make DIR` writes several.",
        )
    held = find_flight(flights, name) if name else flights[-1]
    return Split(tuple(flight for flight in flights if flight is not held), held)


def leave_one_out(flights: Sequence[Flight]) -> Iterator[Split]:
    """Each flight held out once, in their order."""
    for flight in flights:
        yield hold_out(flights, flight.name)


def find_flight(flights: Sequence[Flight], name: str) -> Flight:
    by_name = {flight.name: flight for flight in flights}
    if name not in by_name:
        raise BadInput(f"{flights[0].path.parent} has no flight {name!r:.60}{nearest(name, by_name)}.")
    return by_name[name]
