"""Attempts of runs: one worker process each, with PID, start time and boot ID that identify the process."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, fields
from typing import Any

from storage.database import transaction


@dataclass(frozen=True, slots=True)
class Attempt:
    run: int
    number: int
    outcome: str | None
    reason: str | None
    settings: dict[str, Any]
    gpu: str | None
    boot_id: str | None
    worker_pid: int | None
    worker_started: int | None
    supervisor_pid: int | None
    adoptions: int
    started_at: float
    ended_at: float | None
    exit_code: int | None
    signal: int | None
    peak_gpu_mib: float | None
    peak_host_mib: float | None
    cpu_s: float | None


COLUMNS = tuple(field.name for field in fields(Attempt))


def begin(
    conn: sqlite3.Connection,
    run: int,
    number: int,
    *,
    settings: dict[str, Any],
    gpu: str | None,
    boot_id: str,
    worker_pid: int,
    worker_started: int,
    supervisor_pid: int,
    started_at: float,
) -> None:
    """Records an attempt whose identity is on disk and sets the run to running.

    May be repeated for one attempt: a supervisor may have died between writing the folder and the database.
    """
    with transaction(conn):
        conn.execute(
            "INSERT INTO attempt (run, number, settings, gpu, boot_id, worker_pid, worker_started,"
            " supervisor_pid, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            # A repeated attempt, or one of this number whose worker never started.
            " ON CONFLICT DO UPDATE SET boot_id = excluded.boot_id, worker_pid = excluded.worker_pid,"
            " worker_started = excluded.worker_started, supervisor_pid = excluded.supervisor_pid,"
            " started_at = excluded.started_at WHERE outcome IS NULL",
            (
                run,
                number,
                json.dumps(settings),
                gpu,
                boot_id,
                worker_pid,
                worker_started,
                supervisor_pid,
                started_at,
            ),
        )
        conn.execute(
            "UPDATE run SET state = 'running', reason = NULL, attempts = max(attempts, ?),"
            " started_at = coalesce(started_at, ?) WHERE id = ? AND state IN ('starting', 'running')",
            (number, started_at, run),
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
    """Raises the stored peaks to these values; None changes nothing."""
    with transaction(conn):
        for table, key in (("attempt", "run = :run AND number = :number"), ("run", "id = :run")):
            conn.execute(
                f"UPDATE {table} SET peak_gpu_mib = nullif(max(coalesce(peak_gpu_mib, -1), coalesce(:gpu, -1)), -1),"
                f" peak_host_mib = nullif(max(coalesce(peak_host_mib, -1), coalesce(:host, -1)), -1) WHERE {key}",
                {"run": run, "number": number, "gpu": gpu_mib, "host": host_mib},
            )
        if cpu_s is not None:
            conn.execute("UPDATE attempt SET cpu_s = ? WHERE run = ? AND number = ?", (cpu_s, run, number))


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
    tables = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    return [Attempt(**{**row, "settings": json.loads(row["settings"])}) for row in tables]
