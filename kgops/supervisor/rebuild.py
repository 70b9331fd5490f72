"""Restores a run's database rows from its folder."""

from __future__ import annotations

import contextlib
import os

from kgops.errors import BadInput, KgopsError
from kgops.jobs import toml
from kgops.jobs.files import read_json, read_regular, read_table
from kgops.settings import Home
from kgops.supervisor import locks, processes, run_folder
from kgops.supervisor.attempt_end import commit_decided, new_intake
from kgops.supervisor.plan_file import Plan, as_table, queued_run, read_plan
from kgops.supervisor.run_folder import RunFolder, is_own, must_be_own, number_of
from kgops.supervisor.run_json import IMPORTED, read_runs
from kgops.supervisor.worker_reports import can_be_bounded
from storage import attempts, reports, runs, transfer
from storage.attempts import Attempt
from storage.database import Connection, integrity_problems, transaction, write_indexes_again
from storage.row_check import UnreadableRow, unreadable_rows


def restore_runs(home: Home, conn: Connection) -> tuple[list[int], list[str]]:
    """Restores a row for every folder without one; returns the run numbers, and the errors."""
    restored: list[int] = []
    troubles: list[str] = []
    for path in sorted(home.runs.iterdir()):
        if number_of(path.name) is None or not path.is_dir():
            continue
        if not is_own(RunFolder(path)):
            troubles.append(f"{path.name}: it is a link to the folder of another run or home")
            continue
        try:
            number = restore_run(conn, RunFolder(path), reads_log=can_be_bounded())
        except KgopsError as error:
            troubles.append(f"{path.name}: {error}")
            continue
        if number is not None:
            restored.append(number)
    return restored, troubles


def repair_rows(home: Home, conn: Connection) -> tuple[list[int], list[str]]:
    """Takes damaged rows again from the runs' folders; returns the runs, and what could not be repaired."""
    problems = integrity_problems(conn)
    if any("index" in problem for problem in problems):
        write_indexes_again(conn)
    of_runs: dict[int | None, list[UnreadableRow]] = {}
    for row in unreadable_rows(conn, thorough=bool(problems)):
        of_runs.setdefault(row.run, []).append(row)
    troubles = [str(row) for row in of_runs.pop(None, ())]
    repaired = []
    for number, rows in of_runs.items():
        assert number is not None
        try:
            _repair_run(home, conn, number, rows)
            repaired.append(number)
        except (KgopsError, OSError) as error:
            troubles.append(f"{rows[0]}: {error}")
    return repaired, troubles


def _repair_run(home: Home, conn: Connection, number: int, rows: list[UnreadableRow]) -> None:
    path = next((path for path in home.runs.iterdir() if number_of(path.name) == number), None)
    if path is None:
        raise BadInput(f"the folder of run {number} is gone")
    folder = RunFolder(path)
    must_be_own(number, folder)
    lock = locks.take(folder.supervisor_lock)
    if lock is None:
        raise BadInput(f"run {number} goes on; repeat this when it has ended")
    try:
        if folder.record.exists() or {row.table for row in rows} - {"run", "run_spec"}:
            _take_again(conn, folder, number)
        else:
            _rewrite(conn, folder, number, [row.column for row in rows if row.table == "run"])
    finally:
        os.close(lock)


def _rewrite(conn: Connection, folder: RunFolder, number: int, damaged: list[str]) -> None:
    """Replaces the damaged columns alone: what only the database has of the run stays."""
    plan, ending = read_plan(folder, number), run_folder.read_ending(folder.outcome)
    known = queued_run(plan, folder.path.name)
    if last := folder.last_attempt():
        known = known._replace(attempts=last, state="starting")
    if ending is not None:
        known = known._replace(state=ending.state, reason=ending.reason, ended_at=ending.ended_at)
        known = known._replace(exit_code=ending.exit_code)
    with transaction(conn):
        runs.rewrite(conn, number, {name: getattr(known, name) for name in damaged}, _spec(folder, plan))


def _take_again(conn: Connection, folder: RunFolder, number: int) -> None:
    """Restores the whole run, with its tags and notes."""
    with transaction(conn):
        tags, notes = reports.tags(conn, number), reports.notes(conn, number)
        runs.forget(conn, number)
        if restore_run(conn, folder, reads_log=can_be_bounded()) != number:
            raise BadInput(f"{folder.path} is the folder of another run")
        reports.change_tags(conn, number, add=tags, remove=[])
        for note in notes:
            reports.add_note(conn, number, note.at, note.text)


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
        row = queued_run(plan, folder.path.name)._replace(id=number)
        runs.add(conn, row if last == 0 else row._replace(state="starting"), _spec(folder, plan))
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
    began = Attempt(
        run,
        attempt,
        settings=settings,
        boot_id=identity.boot,
        worker_pid=identity.pid,
        worker_started=identity.started,
        supervisor_pid=0,
        started_at=table.get("at", 0.0),
    )
    attempts.begin(conn, began)
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


def _spec(folder: RunFolder, plan: Plan) -> runs.RunSpec:
    job = {}
    with contextlib.suppress(OSError, ValueError):  # the job file is for people; the plan is what runs
        job = toml.loads(read_regular(folder.job).decode())
    return runs.RunSpec(job, as_table(plan), read_table(folder.environment))
