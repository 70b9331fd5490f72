"""What tests of the record put into it, and how they look at all of it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from storage import runs

FIXTURES = Path(__file__).parent / "fixtures"
ODD = "a'b\"c;--\\%_\x00\x1b[2J\u202e naïve 測試 🧪\nline two"


# Of a plan for a GPU, as little as is recorded of it.
FORECAST: dict[str, Any] = {
    "on": "Tesla T4",
    "on_gpu": True,
    "predicted_mib": 500.0,
    "modelled_s": None,
    "estimate": {"parts_mib": {}},
}


# Of a plan for the CPU.
PROCESS: dict[str, Any] = {
    "kind": "train",
    "on": "the CPU of here",
    "start_mib": 230.0,
    **dict.fromkeys(("constant_mib", "factor", "data_mib", "samples"), 1.0),
}


def add(conn: sqlite3.Connection, number: int, **given: Any) -> None:
    spec = {"job": given.pop("job", {}), "plan": given.pop("plan", {}), "environment": given.pop("env", {})}
    wanted: dict[str, Any] = {
        "workload": "exec",
        "label": f"run {number}",
        "state": "queued",
        "folder": f"{number:04d}-exec",
        "submitted_at": 1000.0 + number,
        **given,
    }
    runs.add(conn, runs.Run(id=number, **wanted), runs.RunSpec(**spec))


@contextmanager
def in_memory(template: Path) -> Iterator[sqlite3.Connection]:
    """A database of this release, quick enough to have one for every example."""
    conn = sqlite3.connect(":memory:", isolation_level=None)
    source = sqlite3.connect(template)
    source.backup(conn)
    source.close()
    conn.execute("PRAGMA foreign_keys = ON")
    try:
        yield conn
    finally:
        conn.close()


def everything(conn: sqlite3.Connection) -> dict[str, list[Any]]:
    """All rows of all tables: what a transaction may or may not have changed."""
    names = [row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: conn.execute(f"SELECT * FROM {name}").fetchall() for name in names}
