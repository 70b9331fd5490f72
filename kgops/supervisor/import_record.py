"""Imports a run into this home: its database rows and its folder, both or neither."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from kgops import __version__
from kgops.errors import BadInput, Unavailable
from kgops.jobs import toml
from kgops.jobs.files import NotAFile, sync, write_durably, write_json
from kgops.settings import Home
from kgops.supervisor import locks, pending
from kgops.supervisor.plan_file import misfit
from kgops.supervisor.run_folder import RunFolder, folder_name
from kgops.supervisor.run_json import IMPORTED, write_runs
from storage import runs, transfer
from storage.database import Connection, transaction
from storage.errors import CommitUnknown
from storage.runs import ENDED
from storage.transfer import Rows

NOT_ENDED = "it had not ended when it was {}"
_STAGED = ".importing-"


def origin(kind: str, source: Path, **details: Any) -> dict[str, Any]:
    """Body of the event that marks a run as imported; None: unknown."""
    try:
        host = socket.gethostname()
    except OSError:
        host = None
    return {"kind": kind, "source": str(source), "by": f"kgops {__version__}", "on": host, **details}


def host_of(environment: Any) -> str | None:
    """Host name in a run's environment; None if there is none."""
    machine = environment.get("machine") if isinstance(environment, dict) else None
    host = machine.get("host") if isinstance(machine, dict) else None
    return host if isinstance(host, str) else None


def put_record(
    home: Home,
    conn: Connection,
    rows: Rows,
    import_mark: dict[str, Any],
    bring: Callable[[RunFolder], None] = lambda _: None,
) -> int:
    """Imports the rows and returns the new run's number; `bring` copies its files into the folder."""
    rows = _with_import_mark(_with_ended_state(rows), import_mark)
    for artifact in rows.tables["artifact"]:
        path = PurePosixPath(artifact["path"])
        if path.is_absolute() or ".." in path.parts:
            raise BadInput(
                f"{import_mark['source']}: artifact {artifact['path']!r:.80} is outside the run's folder"
            )
    if trouble := misfit(rows):
        raise BadInput(f"{import_mark['source']}: {trouble}")
    with staging(home) as folder:
        _write_record(folder, rows)
        bring(folder)
        return enter(
            home, conn, folder, rows.run, lambda c, name, n: _insert_rows(c, rows, name, n, import_mark)
        )


def _write_record(folder: RunFolder, rows: Rows) -> None:
    """Writes the files from which an imported run's rows can be restored."""
    for subfolder in (folder.attempts, folder.results):
        subfolder.mkdir(mode=0o700, exist_ok=True)
    write_durably(folder.record, "".join(write_runs(iter([rows]))).encode())
    write_json(folder.plan, rows.spec["plan"])
    write_json(folder.environment, rows.spec["environment"])
    with contextlib.suppress(TypeError):  # job.toml is for people; some JSON has no place in TOML
        write_durably(folder.job, toml.dumps(rows.spec["job"]).encode())


def enter(
    home: Home,
    conn: Connection,
    staged: RunFolder,
    run: dict[str, Any],
    put: Callable[[Connection, str, int], None],
) -> int:
    """Commits a staged run: numbers and names its folder, and inserts its rows by `put(conn, name, number)`."""
    with ExitStack() as until_committed, transaction(conn):
        number = max(runs.next_number(conn), pending.highest_number(home) + 1)
        while os.path.lexists(home.runs / (name := folder_name(number, run["workload"], run["label"]))):
            number += 1
        until_committed.enter_context(pending.announce(home, name, "launch"))
        until_committed.push(lambda kind, *_: _undo_rename(kind, home.runs / name, staged.path))
        staged.path.rename(home.runs / name)
        sync(home.runs)
        put(conn, name, number)
    return number


@contextmanager
def staging(home: Home) -> Iterator[RunFolder]:
    """A temporary folder for a run to import; removed afterwards unless it was committed."""
    _sweep(home)
    folder = RunFolder(home.runs / f"{_STAGED}{os.urandom(6).hex()}")
    lock = None
    try:
        while lock is None:
            folder.path.mkdir(mode=0o700, exist_ok=True)
            try:
                lock = locks.take(folder.supervisor_lock)
            except FileNotFoundError:  # another import removed it as abandoned
                continue
        yield folder
    except NotAFile:
        raise
    except OSError as error:
        raise Unavailable(
            f"cannot create the run's folder in {home.runs}: {error.strerror or error}",
            "nothing was imported; free some disk space",
        ) from error
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _sweep(home: Home) -> None:
    """Removes folders of killed imports."""
    for path in home.runs.glob(f"{_STAGED}*"):
        if path.is_symlink():
            continue
        try:
            lock = locks.take(RunFolder(path).supervisor_lock)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _undo_rename(kind: type[BaseException] | None, folder: Path, staged: Path) -> None:
    """Undoes the rename if the import failed; not if the commit is unknown: then the next command decides."""
    if kind is not None and not issubclass(kind, CommitUnknown) and folder.is_dir():
        folder.rename(staged)


def _insert_rows(conn: Connection, rows: Rows, name: str, number: int, import_mark: dict[str, Any]) -> None:
    try:
        transfer.insert_rows(conn, rows, folder=name, number=number)
    except ValueError as error:
        raise BadInput(f"{import_mark['source']}: {error}") from error


def _with_import_mark(rows: Rows, import_mark: dict[str, Any]) -> Rows:
    event = {"attempt": 0, "at": time.time(), "kind": IMPORTED, "body": import_mark}
    return rows._replace(tables={**rows.tables, "event": [*rows.tables["event"], event]})


def _with_ended_state(rows: Rows) -> Rows:
    """An unfinished run is imported as interrupted, at the last moment of which its record knows."""
    if rows.run["state"] in ENDED:
        return rows
    reason = NOT_ENDED.format(f"exported ({rows.run['state']})")
    last = _last_moment(rows)
    attempts = [
        {
            **attempt,
            "outcome": attempt["outcome"] or "interrupted",
            "reason": attempt["reason"] or reason,
            "ended_at": last if attempt["ended_at"] is None else attempt["ended_at"],
        }
        for attempt in rows.tables["attempt"]
    ]
    ended = {**rows.run, "state": "interrupted", "reason": reason, "ended_at": last}
    return rows._replace(run=ended, tables={**rows.tables, "attempt": attempts})


def _last_moment(rows: Rows) -> float:
    known = [rows.run["submitted_at"], rows.run["started_at"], rows.run["reported_at"]]
    known += [row["at"] for row in rows.tables["event"]]
    known += [row[name] for row in rows.tables["attempt"] for name in ("started_at", "ended_at")]
    known += [at for curve in rows.curves for at in curve.times]
    last: float = max(at for at in known if at is not None)
    return last
