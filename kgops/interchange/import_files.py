"""Copy the files of an imported folder; only regular files, since a link may lead anywhere and a pipe would block."""

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


def copy_files(source: Path, files: Iterable[Path], target: Path) -> None:
    """Copies `files` to `target` with their paths relative to `source`. Refused if the disk has too little space."""
    paths = list(files)
    need, free = sum(path.lstat().st_size for path in paths), shutil.disk_usage(target).free
    if need > free:
        raise Unavailable(
            f"{source} takes {need / (1 << 30):,.2f} GiB; {free / (1 << 30):,.2f} GiB are free in the home",
            "free some space, or import an export of the run, which has no files",
        )
    for path in paths:
        copy = target / path.relative_to(source)
        try:
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _copy(path, copy)
        except OSError as error:
            raise Unavailable(
                f"cannot copy {path}: {error.strerror or error}", "nothing was imported"
            ) from error


def _copy(path: Path, target: Path) -> None:
    """Copies one file with its modification time, readable by its owner only."""
    with os.fdopen(open_regular(path), "rb") as original:
        status = os.fstat(original.fileno())
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as copy:
            shutil.copyfileobj(original, copy, _BLOCK)
            copy.flush()
            os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
