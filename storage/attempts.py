"""Attempts of a run, and the events that its worker reports."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from storage import influences, reports, series
from storage.database import transaction
from storage.rows import json_table, made


@dataclass(frozen=True, slots=True)
class Attempt:
    run: int
    number: int
    outcome: str | None = None
    reason: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    gpu: str | None = None
    boot_id: str | None = None
    worker_pid: int | None = None
    worker_started: int | None = None
    supervisor_pid: int | None = None
    adoptions: int = 0
    started_at: float = math.nan
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    peak_gpu_mib: float | None = None
    peak_host_mib: float | None = None
    cpu_s: float | None = None


COLUMNS = tuple(field.name for field in fields(Attempt))


_FORGET_PROGRESS = "phase = NULL, done = NULL, total = NULL, unit = NULL, rate = NULL, reported_at = NULL"


def begin(conn: sqlite3.Connection, attempt: Attempt) -> None:
    """Records an attempt whose identity is on disk and sets the run to running.

    May be repeated for one attempt: a supervisor may have died between writing the folder and the database.
    """
    with transaction(conn):
        conn.execute(
            f"INSERT INTO attempt ({', '.join(COLUMNS)}) VALUES (:{', :'.join(COLUMNS)})"
            # A repeated attempt, or one of this number whose worker never started.
            " ON CONFLICT DO UPDATE SET boot_id = excluded.boot_id, worker_pid = excluded.worker_pid,"
            " worker_started = excluded.worker_started, supervisor_pid = excluded.supervisor_pid,"
            " started_at = excluded.started_at WHERE outcome IS NULL",
            {**asdict(attempt), "settings": json.dumps(attempt.settings)},
        )
        # What the attempt before it reported would be shown as this one's. The metric stays: it was measured.
        conn.execute(
            f"UPDATE run SET {_FORGET_PROGRESS} WHERE id = ? AND attempts < ? AND state IN ('starting', 'running')",
            (attempt.run, attempt.number),
        )
        conn.execute(
            "UPDATE run SET state = 'running', reason = NULL, attempts = max(attempts, ?),"
            " started_at = coalesce(started_at, ?) WHERE id = ? AND state IN ('starting', 'running')",
            (attempt.number, attempt.started_at, attempt.run),
        )


def adopt(conn: sqlite3.Connection, run: int, number: int, supervisor_pid: int) -> None:
    with transaction(conn):
        conn.execute(
            "UPDATE attempt SET adoptions = adoptions + 1, supervisor_pid = ? WHERE run = ? AND number = ?",
            (supervisor_pid, run, number),
        )


def note_peaks(
    conn: sqlite3.Connection,
    run: int,
    number: int,
    *,
    gpu_mib: float | None,
    host_mib: float | None,
    cpu_s: float | None,
) -> None:
    """Raises the stored values to these; None changes nothing."""
    with transaction(conn):
        for table, key in (("attempt", "run = :run AND number = :number"), ("run", "id = :run")):
            conn.execute(
                f"UPDATE {table} SET peak_gpu_mib = nullif(max(coalesce(peak_gpu_mib, -1), coalesce(:gpu, -1)), -1),"
                f" peak_host_mib = nullif(max(coalesce(peak_host_mib, -1), coalesce(:host, -1)), -1) WHERE {key}",
                {"run": run, "number": number, "gpu": gpu_mib, "host": host_mib},
            )
        if cpu_s is not None:
            conn.execute(
                "UPDATE attempt SET cpu_s = max(coalesce(cpu_s, 0), ?) WHERE run = ? AND number = ?",
                (cpu_s, run, number),
            )


def close(
    conn: sqlite3.Connection,
    run: int,
    number: int,
    *,
    outcome: str,
    reason: str | None,
    exit_code: int | None,
    signal: int | None,
    ended_at: float,
) -> None:
    """Writes an attempt's outcome once: closing it again changes nothing."""
    with transaction(conn):
        conn.execute(
            "UPDATE attempt SET outcome = ?, reason = ?, exit_code = ?, signal = ?, ended_at = ?"
            " WHERE run = ? AND number = ? AND outcome IS NULL",
            (outcome, reason, exit_code, signal, ended_at, run, number),
        )


def of_run(conn: sqlite3.Connection, run: int) -> list[Attempt]:
    rows = conn.execute(f"SELECT {', '.join(COLUMNS)} FROM attempt WHERE run = ? ORDER BY number", (run,))
    place = COLUMNS.index("settings")
    return made(Attempt, [(*row[:place], json_table(row[place]), *row[place + 1 :]) for row in rows])


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
    test_triples: list[influences.TestTriple] = field(default_factory=list)

    def __bool__(self) -> bool:
        many = (self.points, self.events, self.options, self.artifacts, self.test_triples)
        return any(many) or bool(self.progress or self.metric)


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
        if batch.progress is not None:
            p = batch.progress
            conn.execute(
                "UPDATE run SET phase = ?, done = ?, total = ?, unit = ?, rate = ?, reported_at = ? WHERE id = ?",
                (p.phase, p.done, p.total, p.unit, p.rate, p.at, run),
            )
        if batch.metric is not None:
            conn.execute("UPDATE run SET metric = ?, metric_value = ? WHERE id = ?", (*batch.metric, run))
