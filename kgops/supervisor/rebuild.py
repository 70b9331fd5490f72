"""Restores a run's database rows from its folder."""

from __future__ import annotations

import contextlib
from typing import Any

from kgops.errors import BadInput, KgopsError
from kgops.jobs import toml
from kgops.jobs.files import read_json, read_regular, read_table
from kgops.settings import Home
from kgops.supervisor import processes, run_folder
from kgops.supervisor.attempt_end import commit_decided, new_intake
from kgops.supervisor.log_patterns import can_be_bounded
from kgops.supervisor.plan_file import as_table, read_plan
from kgops.supervisor.run_folder import RunFolder, number_of
from kgops.supervisor.run_json import IMPORTED, read_runs
from storage import attempts, reports, runs, transfer
from storage.database import Connection, transaction


def restore_runs(home: Home, conn: Connection) -> tuple[list[int], list[str]]:
    """Restores a row for every folder without one; returns the run numbers, and the errors."""
    restored: list[int] = []
    troubles: list[str] = []
    for path in sorted(home.runs.iterdir()):
        if number_of(path.name) is None or not path.is_dir():
            continue
        try:
            number = restore_run(conn, RunFolder(path), reads_log=can_be_bounded())
        except KgopsError as error:
            troubles.append(f"{path.name}: {error}")
            continue
        if number is not None:
            restored.append(number)
    return restored, troubles


def restore_run(conn: Connection, folder: RunFolder, *, reads_log: bool = False) -> int | None:
    """Restores a run's row and returns its number; None if it has one already; BadInput if its files are damaged.

    `reads_log`: also match the log patterns, which may take seconds.

    The next supervisor of an unfinished run records its files from their beginning.
    """
    try:
        with transfer.row_errors():
            return _restore_run(conn, folder, reads_log=reads_log)
    except OSError as error:
        raise BadInput(f"{error.filename or folder.path}: {error.strerror}") from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        # Valid JSON in another format: it may contain anything.
        problem = f"{type(error).__name__}: {error}"
        raise BadInput(f"{folder.path}: kgops cannot read its files: {problem:.200}") from error


def _restore_run(conn: Connection, folder: RunFolder, *, reads_log: bool) -> int | None:
    if folder.record.exists():
        return _restore_imported(conn, folder)
    plan = read_plan(folder)
    ending = run_folder.read_ending(folder.outcome)
    last = folder.last_attempt()
    with transaction(conn):
        if runs.with_folder(conn, folder.path.name) is not None:
            return None
        number = plan.number if runs.get(conn, plan.number) is None else runs.next_number(conn)
        runs.add(
            conn,
            number=number,
            workload=plan.workload,
            label=plan.label,
            profile=plan.profile,
            state="queued" if last == 0 else "starting",
            folder=folder.path.name,
            submitted_at=plan.submitted_at,
            gpu_request=plan.gpu_request,
            reserved_mib=plan.reserved_mib,
            exclusive=plan.exclusive,
            predicted_mib=plan.predicted_mib,
            spec=runs.RunSpec(_job(folder), as_table(plan), read_table(folder.environment)),
        )
        for n in range(1, last + 1):
            _restore_attempt(conn, folder, number, n)
        for mark in read_json(folder.origins) or ():
            reports.add_event(conn, number, 0, mark["at"], IMPORTED, mark["body"])
        if ending is not None:
            renumbered = read_plan(folder, number)
            commit_decided(
                conn, folder, renumbered, ending, new_intake(conn, folder, renumbered, reads_log=reads_log)
            )
    return number


def _restore_imported(conn: Connection, folder: RunFolder) -> int | None:
    """Restores an imported run from its record.json."""
    with transaction(conn):
        if runs.with_folder(conn, folder.path.name) is not None:
            return None
        (rows,) = read_runs(conn, read_regular(folder.record), str(folder.record))
        number = number_of(folder.path.name)
        free = number if number is not None and runs.get(conn, number) is None else None
        return transfer.insert_rows(conn, rows, folder=folder.path.name, number=free)


def _restore_attempt(conn: Connection, folder: RunFolder, run: int, attempt: int) -> None:
    table = read_table(folder.attempt(attempt).identity)
    identity = processes.identity_from(table)
    if identity is None:
        return
    settings = table.get("settings", {})
    if not isinstance(settings, dict):
        raise TypeError(f"the settings of attempt {attempt} are {settings!r:.40}")
    attempts.begin(
        conn,
        run,
        attempt,
        settings=settings,
        gpu=None,
        boot_id=identity.boot,
        worker_pid=identity.pid,
        worker_started=identity.started,
        supervisor_pid=0,
        started_at=table.get("at", 0.0),
    )
    closed = read_json(folder.attempt(attempt).closed)
    if isinstance(closed, dict):
        attempts.close(
            conn,
            run,
            attempt,
            outcome=closed["outcome"],
            reason=closed["reason"],
            exit_code=None,
            signal=None,
            ended_at=closed["at"],
        )


def _job(folder: RunFolder) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):  # the job file is for people; the plan is what runs
        return toml.loads(read_regular(folder.job).decode())
    return {}
