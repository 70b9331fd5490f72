"""Write a worker's events to the database exactly once: rows and file offsets commit together."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from typing import Any

from storage import influences, measurements, reports, series
from storage.database import transaction

# A worker's prediction is stored only where the plan has no forecast. The worker counts tensors alone; where the plan
# has a model of the whole process, the run's prediction is that of the process.
_PREDICTED = """
    UPDATE run SET predicted_mib = coalesce((
        SELECT json_extract(plan, '$.process.start_mib') + json_extract(plan, '$.process.constant_mib')
            + json_extract(plan, '$.process.data_mib') + ?1 * json_extract(plan, '$.process.factor')
        FROM run_spec WHERE run = ?2), ?1)
    WHERE id = ?2
    AND (SELECT json_extract(plan, '$.forecast') FROM run_spec WHERE run = ?2) IS NULL
"""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Bytes of events.jsonl and worker.log that are processed already."""

    events: int = 0
    log: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    phase: str | None
    done: float | None
    total: float | None
    unit: str | None
    rate: float | None
    at: float


@dataclass(slots=True)
class Batch:
    """Everything read since the last commit, in order."""

    points: list[series.Point] = field(default_factory=list)
    events: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    options: list[reports.Option] = field(default_factory=list)
    artifacts: list[reports.Artifact] = field(default_factory=list)
    progress: Progress | None = None
    metric: tuple[str, float | None] | None = None
    predicted_mib: float | None = None  # by the worker: stored where the plan had no forecast
    test_triples: list[influences.TestTriple] = field(default_factory=list)
    measured: list[measurements.Measurement] = field(default_factory=list)

    def __bool__(self) -> bool:
        many = (self.points, self.events, self.options, self.artifacts, self.test_triples, self.measured)
        return any(many) or bool(self.progress or self.metric)  # a prediction is one of the events


def offsets(conn: sqlite3.Connection, run: int) -> Offsets:
    row = conn.execute("SELECT events_offset, log_offset FROM intake WHERE run = ?", (run,)).fetchone()
    return Offsets(*row) if row else Offsets()


def write_batch(conn: sqlite3.Connection, run: int, attempt: int, batch: Batch, upto: Offsets) -> None:
    """Writes the batch and moves the offsets in one transaction: after any crash, neither or both."""
    with transaction(conn):
        conn.execute(
            "UPDATE intake SET events_offset = ?, log_offset = ? WHERE run = ?", (upto.events, upto.log, run)
        )
        series.append(conn, run, batch.points)
        conn.executemany(
            "INSERT INTO event (run, attempt, at, kind, body) VALUES (?, ?, ?, ?, ?)",
            [(run, attempt, at, kind, json.dumps(body)) for at, kind, body in batch.events],
        )
        reports.write_options(conn, run, batch.options)
        reports.write_artifacts(conn, run, batch.artifacts)
        influences.add(conn, run, batch.test_triples)
        for measurement in batch.measured:
            measurements.add(conn, measurement)
        if batch.progress is not None:
            p = batch.progress
            conn.execute(
                "UPDATE run SET phase = ?, done = ?, total = ?, unit = ?, rate = ?, reported_at = ? WHERE id = ?",
                (p.phase, p.done, p.total, p.unit, p.rate, p.at, run),
            )
        if batch.predicted_mib is not None:
            conn.execute(_PREDICTED, (batch.predicted_mib, run))
        if batch.metric is not None:
            conn.execute("UPDATE run SET metric = ?, metric_value = ? WHERE id = ?", (*batch.metric, run))
