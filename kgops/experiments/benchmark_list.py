"""List of benchmarks: paired comparisons, values measured by single commands, and claim tables not yet measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage import benches
from storage.database import Connection

CLAIMS = "claims "  # prefix of the names of claim benchmarks
OVERVIEW = "overview"  # key of the recommendations and all claims
Key = int | str | tuple[str, str]  # benchmark number, claim table, or command and machine


class Entry(NamedTuple):
    key: Key
    name: str
    command: str
    machine: str | None  # key of the fingerprint; None: not measured here
    at: float = 0.0
    ended: bool = True
    metrics: int = 0


def benchmarks(conn: Connection) -> list[Entry]:
    """Paired comparisons."""
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
        for one in benches.headings(conn)
    ]


def of_commands(conn: Connection) -> list[Entry]:
    """Values of single commands, by command and machine."""
    return [
        Entry(
            (one.command, one.machine), one.command, one.command, one.machine, one.last_at, True, one.metrics
        )
        for one in benches.batches(conn)
    ]


def overview() -> Entry:
    """The entry with recommendations and all claims."""
    return Entry(OVERVIEW, "What to do, and all claims", "kgops bench show claims --all", None)


def unmeasured(entries: Sequence[Entry]) -> list[Entry]:
    """Claim tables without a benchmark in `entries`."""
    from kgops.experiments.claims import TABLES  # imports all verdict code, which a first paint does not need

    measured = {one.name.removeprefix(CLAIMS)[:1] for one in entries if one.name.startswith(CLAIMS)}
    return [
        Entry(letter, f"{CLAIMS}{letter}: {title}", f"kgops bench claims --quick --only {letter}", None)
        for letter, title in TABLES.items()
        if letter not in measured
    ]
