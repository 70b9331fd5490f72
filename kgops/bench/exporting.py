"""Benchmarks and measurements written out: JSON, CSV, Markdown, Parquet."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kgops.bench.pairs import RULE
from kgops.bench.summary import rows
from storage import benches, measurements
from storage.benches import Bench
from storage.database import Connection

__all__ = ["as_table"]


def as_table(conn: Connection, bench: Bench) -> dict[str, Any]:
    """All there is of a benchmark, down to what each run of each pair measured."""
    return {
        **{name: value for name, value in asdict(bench).items() if name != "fingerprint"},
        "fingerprint": measurements.fingerprint(conn, bench.fingerprint),
        "fingerprint_key": bench.fingerprint,
        "rule": RULE,
        "row": [asdict(row) for row in rows(conn, bench)],
        "pair": [asdict(pair) for pair in benches.pairs(conn, bench.id)],
    }
