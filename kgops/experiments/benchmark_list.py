"""What a person can look at of all that was measured: benchmarks of pairs, what single commands measured, and tables
of claims that nobody has run on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage import metric_query
from storage.database import Connection
from storage.metric_query import Known

__all__ = ["CLAIMS", "OVERVIEW", "Entry", "Key", "benchmarks", "of_commands", "overview", "unmeasured"]

CLAIMS = "claims "  # how the name of a benchmark begins that judges a table of them
OVERVIEW = "overview"  # the key of what to do, with all claims
Key = int | str | tuple[str, str]  # a benchmark, a table of claims, a command and the machine it ran on


class Entry(NamedTuple):
    key: Key
    name: str
    command: str
    machine: str | None  # key of the fingerprint; None: it was never measured here
    at: float = 0.0
    ended: bool = True
    metrics: int = 0


def benchmarks(conn: Connection) -> list[Entry]:
    """The newest first."""
    return [
        Entry(
            one.number,
            one.name,
            one.command,
            one.machine,
            one.ended_at or one.begun_at,
            one.ended_at is not None,
            one.metrics,
        )
        for one in metric_query.headings(conn)
    ]


def of_commands(conn: Connection, known: Known | None) -> list[Entry]:
    """What was measured otherwise, by command and machine, the newest first; of nothing known what came last."""
    batches = metric_query.recent_batches(conn) if known is None else metric_query.batches(conn, known)
    return [
        Entry(
            (one.command, one.machine), one.command, one.command, one.machine, one.last_at, True, one.metrics
        )
        for one in batches
    ]


def overview() -> Entry:
    """What to do, and all claims."""
    return Entry(OVERVIEW, "What to do, and all claims", "kgops bench show claims --all", None)


def unmeasured(entries: Sequence[Entry]) -> list[Entry]:
    """The tables of claims that are not among these."""
    from kgops.experiments.claims import TABLES  # with all that judges, which is not needed at first

    measured = {one.name.removeprefix(CLAIMS)[:1] for one in entries if one.name.startswith(CLAIMS)}
    return [
        Entry(letter, f"{CLAIMS}{letter}: {title}", f"kgops bench claims --quick --only {letter}", None)
        for letter, title in TABLES.items()
        if letter not in measured
    ]
