"""Files of a folder that is imported: regular ones alone. A link may lead anywhere, and a pipe would be waited for."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from kgops.errors import BadInput, Unavailable
from kgops.jobs.files import NotAFile, open_regular
from kgops.supervisor.run_folder import RunFolder

__all__ = ["copy_files", "files_below", "must_be_files", "no_file", "not_as_ours"]

_BLOCK = 1 << 20
_HINT = "give a folder as kgops or the scripts left it: an export (`kgops export --to json`) travels better"


def no_file(error: NotAFile) -> BadInput:
    """What a person is told of it."""
    return BadInput(f"{error.filename}: {error.strerror}", _HINT)


def must_be_files(paths: Iterable[Path]) -> None:
    """Of those that are there. All are opened with the same care later; this tells it before anything is done."""
    for path in paths:
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not stat.S_ISREG(mode):
            raise no_file(NotAFile(path, mode))


def not_as_ours(folder: RunFolder) -> None:
    """Refuses a run's folder in which something else stands under a name of ours."""
    for path in (folder.path / "attempts", folder.path / "results"):
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise BadInput(f"{path}: it is no folder", _HINT)
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
            raise BadInput(f"{attempt.path}: it is no folder", _HINT)
        must_be_files((attempt.identity, attempt.closed, attempt.exit, attempt.begun, attempt.asked_to_stop))


def files_below(folder: Path, others: list[Path]) -> Iterator[Path]:
    """Regular files; what is neither one nor a folder is added to `others`."""
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


def copy_files(source: Path, files: Iterable[Path], target: Path) -> None:
    """Copies of `files` under the names they have below `source`; refused before the disk is full."""
    found = list(files)
    need, free = sum(path.lstat().st_size for path in found), shutil.disk_usage(target).free
    if need > free:
        raise Unavailable(
            f"{source} holds {need / (1 << 30):,.2f} GiB; {free / (1 << 30):,.2f} GiB are free in the home",
            "free some space, or import an export of the run: it has no files",
        )
    for path in found:
        wanted = target / path.relative_to(source)
        try:
            wanted.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _copy(path, wanted)
        except OSError as error:
            raise Unavailable(
                f"cannot copy {path}: {error.strerror or error}", "nothing was imported"
            ) from error


def _copy(path: Path, wanted: Path) -> None:
    """With its moment, which says when a result was written; for its new owner alone."""
    with os.fdopen(open_regular(path), "rb") as there:
        status = os.fstat(there.fileno())
        here = os.open(wanted, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(here, "wb") as copy:
            shutil.copyfileobj(there, copy, _BLOCK)
            copy.flush()
            os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
