"""Import a run's folder from another home or machine: copy its files and rebuild its database rows from them.

Curves measured by the supervisor (memory over time) are only in the database, and so only in an export.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

from kgops.errors import BadInput, Unavailable, Usage
from kgops.interchange.import_files import copy_files, files_below
from kgops.jobs import manifest
from kgops.jobs.files import NotAFile, read_json, write_json
from kgops.settings import Home
from kgops.supervisor import locks, preallocated_record, rebuild
from kgops.supervisor.import_record import NOT_ENDED, enter, host_of, origin, staging
from kgops.supervisor.plan_file import Plan, as_table, read_plan
from kgops.supervisor.record_checks import misfit
from kgops.supervisor.run_folder import RunFolder
from storage import transfer
from storage.database import Connection

__all__ = ["describe", "import_folder", "must_be_still"]

_LEFT_BEHIND = ("private.json", "supervisor.lock", "worker.lock", "stop.slot", "supervisor.log")


def must_be_still(folder: RunFolder) -> None:
    """Refuses a run that is not finished: the copy would be inconsistent."""
    for lock in (folder.supervisor_lock, folder.worker_lock):
        if locks.is_held(lock):
            raise Usage(f"the run in {folder.path} is still running", "import it after it has ended")


def describe(folder: RunFolder) -> tuple[Plan, str]:
    """The run's plan, and a description of the run."""
    for path in (folder.plan, folder.environment):
        _must_be_text(path)
    try:
        plan = read_plan(folder)
    except Unavailable as error:
        raise BadInput(f"{folder.plan} is damaged", "import an export of the run, if there is one") from error
    if (
        not isinstance(plan.workload, str)
        or not isinstance(plan.label, str)
        or not _is_timestamp(plan.submitted_at)
    ):
        raise BadInput(f"{folder.plan}: its workload, label or submission time is invalid")
    ending = preallocated_record.read_ending(folder.outcome)
    return plan, f"{plan.workload} run {plan.number}, {ending.state if ending else 'not ended'}: {plan.label}"


def import_folder(home: Home, conn: Connection, source: RunFolder, plan: Plan) -> tuple[int, list[str]]:
    """Imports the run; returns its new number and the problems with its files."""
    troubles: list[str] = []
    with staging(home) as staged:
        others: list[Path] = []
        copy_files(source.path, _files_of(source.path, others), staged.path)
        troubles += _left_out_message(others, source.path)
        if preallocated_record.read_ending(staged.outcome) is None:
            preallocated_record.write_ending(staged.outcome, _unended(staged))
        _, trouble = manifest.read(staged.manifest)
        if trouble is not None:
            troubles.append(f"{trouble}: metrics and files of the manifest are not imported")
        host = host_of(read_json(staged.environment))
        body = origin("folder", source.path.absolute(), run=plan.number, host=host, troubles=troubles)
        earlier = read_json(staged.origins)
        marks = [*(earlier if isinstance(earlier, list) else []), {"at": time.time(), "body": body}]
        write_json(staged.origins, marks)

        def put(c: Connection, name: str, number: int) -> None:
            folder = RunFolder(home.runs / name)
            write_json(folder.plan, {**as_table(plan), "number": number})
            try:
                rebuild.restore_run(c, folder)
            except BadInput as error:  # named by the path that the user gave
                raise BadInput(error.message.replace(str(folder.path), str(source.path))) from error
            rows = transfer.read_rows(c, number)
            if rows is not None and (trouble := misfit(rows)):
                raise BadInput(f"{source.path}: {trouble}")

        number = enter(home, conn, staged, {"workload": plan.workload, "label": plan.label}, put)
    return number, troubles


def _must_be_text(path: Path) -> None:
    """Refuses unpaired surrogates: valid JSON that cannot be written as UTF-8."""
    try:
        json.dumps(read_json(path), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(f"{path} contains an unpaired surrogate: invalid text") from error


def _is_timestamp(at: object) -> bool:
    return isinstance(at, (int, float)) and not isinstance(at, bool)


def _unended(folder: RunFolder) -> preallocated_record.Ending:
    """An `interrupted` ending, for a run whose ending was never written."""
    written = [path.stat().st_mtime for path in (folder.events, folder.log) if path.exists()]
    last = max(written, default=folder.plan.stat().st_mtime)
    return preallocated_record.Ending(
        "interrupted", NOT_ENDED.format("imported"), None, folder.last_attempt(), last
    )


def _files_of(folder: Path, others: list[Path]) -> Iterator[Path]:
    """The run's files, without lock files and private ones."""
    for path in files_below(folder, others):
        if path.parent != folder or not (path.name in _LEFT_BEHIND or path.name.startswith(".")):
            yield path


def _left_out_message(others: list[Path], folder: Path) -> list[str]:
    """A message about the files that were not imported."""
    if not others:
        return []
    first = NotAFile(others[0], others[0].lstat().st_mode)
    more = f", and {len(others) - 1:,} more" if len(others) > 1 else ""
    return [f"{others[0].relative_to(folder)} is not imported{more}: {first.strerror}"]
