"""List of benchmarks: which options pay here, paired comparisons, and values measured by single commands."""

from __future__ import annotations

from typing import NamedTuple

from storage import benches
from storage.database import Connection

OPTIONS = "options"  # key of the page on which options pay here
Key = int | str | tuple[str, str]  # benchmark number, OPTIONS, or command and machine


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


def options() -> Entry:
    """The entry whose detail says which options pay here."""
    return Entry(OPTIONS, "Which options pay here", "kgops bench show claims", None)
