"""Runs that a tour made up: known by the event that marks them, wherever they have been exported to."""

from __future__ import annotations

from kgops.errors import Usage
from kgops.jobs.text import one_line
from kgops.runs.exporting.record import IMPORTED
from storage.transfer import Rows

__all__ = ["TOUR", "refuse_made_up"]

TOUR = "tour"  # kind of the event's origin


def refuse_made_up(rows: Rows, source: str) -> None:
    """A made-up run never becomes part of anybody's history."""
    for event in rows.tables["event"]:
        if event["kind"] == IMPORTED and event["body"].get("kind") == TOUR:
            raise Usage(
                f"{source}: the run {one_line(rows.run['label'], 60)!r} was made up for a tour",
                "a record holds what took place; `kgops demo --tour` makes another tour",
            )
