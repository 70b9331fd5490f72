"""Import of a folder that other programs wrote: its files by kind."""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kgops.errors import BadInput, Unavailable, Usage
from kgops.jobs import manifest
from kgops.jobs.events import is_metric
from kgops.jobs.files import ROOM, NotAFile, open_regular, read_json, write_json, write_with_holes
from kgops.settings import Home
from kgops.supervisor import locks, rebuild, run_folder
from kgops.supervisor.import_record import NOT_ENDED, enter, host_of, origin, staging
from kgops.supervisor.plan_file import Plan, as_table, misfit, read_plan
from kgops.supervisor.run_folder import RunFolder
from storage import attempts, reports, series, transfer
from storage.database import Connection
from storage.transfer import Rows

_BLOCK = 1 << 20
_HINT = "give an unchanged folder of kgops or of the scripts, or an export (`kgops export --to json`)"


def no_file(error: NotAFile) -> BadInput:
    """The error message for a path that is not a regular file."""
    return BadInput(f"{error.filename}: {error.strerror}", _HINT)


def must_be_files(paths: Iterable[Path]) -> None:
    """Refuses paths that exist and are not regular files, before anything is imported."""
    for path in paths:
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not stat.S_ISREG(mode):
            raise no_file(NotAFile(path, mode))


def not_as_ours(folder: RunFolder) -> None:
    """Refuses a run's folder in which a name that kgops uses is not a regular file or folder."""
    for path in (folder.path / "attempts", folder.path / "results"):
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise BadInput(f"{path}: it is not a folder", _HINT)
    must_be_files(
        (
            *(folder.plan, folder.environment, folder.job, folder.origins, folder.record),
            *(folder.outcome, folder.stop, folder.supervisor_lock, folder.worker_lock),
            *(folder.events, folder.log, folder.manifest),
        )
    )
    for number in range(1, folder.last_attempt() + 1):
        attempt = folder.attempt(number)
        if attempt.path.is_symlink() or (attempt.path.exists() and not attempt.path.is_dir()):
            raise BadInput(f"{attempt.path}: it is not a folder", _HINT)
        must_be_files((attempt.identity, attempt.closed, attempt.exit, attempt.begun, attempt.asked_to_stop))


def files_below(folder: Path, others: list[Path]) -> Iterator[Path]:
    """Regular files; links and special files are added to `others`."""
    for root, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        links = [name for name in folders if Path(root, name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(root, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path
            else:
                others.append(path)


def _raise(error: OSError) -> None:
    raise error


def copy_files(source: Path, files: Iterable[Path], target: Path, *, takes: bool = False) -> None:
    """Copies `files` to `target` with their paths relative to `source`. Refused if the disk has too little space.

    `takes`: they need not stay at `source`, on the same disk, and need no space."""
    paths = list(files)
    need, free = sum(map(_size_on_disk, paths)), shutil.disk_usage(target).free
    if need > free and not takes:
        raise Unavailable(
            f"{source} takes {need / (1 << 30):,.2f} GiB; {free / (1 << 30):,.2f} GiB are free in the home",
            "free some space, or import an export of the run, which has no files",
        )
    for path in paths:
        copy = target / path.relative_to(source)
        try:
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.rename(copy) if takes else _copy(path, copy)
        except OSError as error:
            raise Unavailable(
                f"cannot copy {path}: {error.strerror or error}", "nothing was imported"
            ) from error


def _size_on_disk(path: Path) -> int:
    """Without its holes."""
    status = path.lstat()
    return min(status.st_size, status.st_blocks * 512)


def _copy(path: Path, target: Path) -> None:
    """Copies one file with its modification time, readable by its owner only."""
    with os.fdopen(open_regular(path), "rb") as original:
        status = os.fstat(original.fileno())
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as copy:
            while block := original.read(_BLOCK):
                write_with_holes(copy, block)
            copy.flush()
            os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


_LEFT_BEHIND = frozenset(
    ("private.json", "supervisor.lock", "worker.lock", "stop.slot", ROOM, "supervisor.log")
)


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
        or not is_metric(plan.submitted_at)
    ):
        raise BadInput(f"{folder.plan}: its workload, label or submission time is invalid")
    ending = run_folder.read_ending(folder.outcome)
    return plan, f"{plan.workload} run {plan.number}, {ending.state if ending else 'not ended'}: {plan.label}"


def import_folder(
    home: Home, conn: Connection, source: RunFolder, plan: Plan, pulled: Pulled | None = None
) -> tuple[int, list[str]]:
    """Imports the run; returns its new number and the problems with its files.

    `pulled`: the run of which the folder is a copy to use up."""
    troubles: list[str] = []
    with staging(home) as staged:
        others: list[Path] = []
        copy_files(source.path, _files_of(source.path, others), staged.path, takes=pulled is not None)
        troubles += _left_out_message(others, source.path)
        if run_folder.read_ending(staged.outcome) is None:
            run_folder.write_ending(staged.outcome, _unended(staged))
        _, trouble = manifest.read(staged.manifest)
        if trouble is not None:
            troubles.append(f"{trouble}: metrics and files of the manifest are not imported")
        host = host_of(read_json(staged.environment))
        came_from = Path(pulled.name) if pulled is not None else source.path.absolute()
        body = origin("folder", came_from, run=plan.number, host=host, troubles=troubles)
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
            if pulled is not None and pulled.record is not None:
                try:
                    add_record(c, number, pulled.record)
                except ValueError as error:
                    raise BadInput(f"the record of {pulled.name}: {error}") from error
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


def _unended(folder: RunFolder) -> run_folder.Ending:
    """An `interrupted` ending, for a run whose ending was never written."""
    written = [path.stat().st_mtime for path in (folder.events, folder.log) if path.exists()]
    last = max(written, default=folder.plan.stat().st_mtime)
    return run_folder.Ending("interrupted", NOT_ENDED.format("imported"), None, folder.last_attempt(), last)


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


class Pulled(NamedTuple):
    """A run of another host, whose folder was copied."""

    name: str  # as in lab2:17
    record: Rows | None = None  # None: it did not come


def add_record(conn: Connection, number: int, rows: Rows) -> None:
    """Tags, notes, peaks, and curves that the supervisor sampled. ValueError: one of them fits no row."""
    with transfer.row_errors():
        reports.change_tags(conn, number, add=[row["tag"] for row in rows.tables["tag"]], remove=[])
        for note in rows.tables["note"]:
            reports.add_note(conn, number, note["at"], note["text"])
        for attempt in rows.tables["attempt"]:
            attempts.note_peaks(
                conn,
                number,
                attempt["number"],
                gpu_mib=attempt["peak_gpu_mib"],
                host_mib=attempt["peak_host_mib"],
                cpu_s=attempt["cpu_s"],
            )
        known = {one.name for one in series.of_run(conn, number)}
        for curve in rows.curves:
            if curve.name not in known:
                points = zip(curve.steps, curve.values, curve.times, strict=True)
                series.append(conn, number, [series.Point(curve.name, *point) for point in points])
        series.settle(conn, number)
