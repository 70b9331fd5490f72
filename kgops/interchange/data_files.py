"""The files that a job reads, by what is in them: another machine finds its own copy, or keeps one that is sent.

A digest is the SHA-256 of what `sha256sum` would print for the files, in the order of their names.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from kgops.errors import BadInput, Usage
from kgops.jobs.files import open_regular, sync_folder
from kgops.jobs.job import Job
from kgops.jobs.workloads import WORKLOADS
from kgops.settings import Home

__all__ = [
    "DataFiles",
    "data_files_of",
    "find_kept",
    "is_place",
    "keep",
    "read_data_files",
    "size_of",
    "with_absolute_paths",
    "with_paths",
]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_BLOCK = 1 << 20
_MOST_FILES = 100_000
_ABANDONED_S = 24 * 3600.0
_CONFIG = "config.json"  # of a model: without it nobody knows the model's size
_MODELS = ("model_path", "checkpoint_dir")


@dataclass(frozen=True, slots=True)
class DataFiles:
    """`path` is what the job names: a file or a folder. `files` lie below `root`, which is a folder above it."""

    path: Path
    root: Path
    files: tuple[str, ...]
    size: int
    digest: str
    is_model: bool

    @property
    def below_root(self) -> str:
        return self.path.relative_to(self.root).as_posix()


def data_files_of(job: Job) -> dict[str, DataFiles]:
    """By key of the job's settings. Usage where a file is not there or cannot be read."""
    return {
        key: read_data_files(Path(value), is_model=key.rpartition(".")[2] in _MODELS)
        for key, value in _named(job)
    }


def with_absolute_paths(job: Job, cwd: Path) -> Job:
    """Another machine's kgops has another working folder."""
    return with_paths(job, {key: str(cwd / value) for key, value in _named(job)})


def with_paths(job: Job, paths: Mapping[str, str]) -> Job:
    """The job with other paths for these keys."""
    settings: dict[str, Any] = dict(job.settings)
    for key, path in paths.items():
        table, _, name = key.rpartition(".")
        if table:
            settings[table] = {**settings[table], name: path}
        else:
            settings[name] = path
    return replace(job, settings=settings)


def read_data_files(path: Path, *, is_model: bool) -> DataFiles:
    """Reads all of what a path names; a model with the `config.json` of its training and the digest beside it."""
    root, names = _files(path, is_model)
    listing, size = [], 0
    for name in names:
        digest, length = _sha256(root / name)
        listing.append(f"{digest}  {name}\n")
        size += length
    digest = hashlib.sha256("".join(listing).encode("utf-8", "surrogateescape")).hexdigest()
    return DataFiles(path, root, tuple(names), size, digest, is_model)


def size_of(path: Path, *, is_model: bool) -> int:
    root, names = _files(path, is_model)
    return sum((root / name).stat().st_size for name in names)


def find_kept(home: Home, digest: str, below_root: str) -> Path | None:
    """Where files of this digest lie among those that were sent here."""
    kept = _folder(home, digest) / below_root
    try:
        is_whole = _digest_below(_folder(home, digest)) == digest
    except (OSError, Usage):
        return None
    return kept if is_whole and kept.exists() else None


def keep(home: Home, digest: str, below_root: str, unpack: Callable[[Path], object]) -> Path:
    """Keeps what `unpack` writes into a folder, once. BadInput if it is something else than its digest says."""
    target, data = _folder(home, digest), home.path / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    _clear_abandoned(data)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=data, ignore_cleanup_errors=True) as part:
        folder = Path(part) / "files"
        folder.mkdir(mode=0o700)
        unpack(folder)
        if _digest_below(folder) != digest or not (folder / below_root).exists():
            raise BadInput("the files that came are not those that were announced", "send them again")
        for name in _names_below(folder):
            _sync(folder / name)
        if target.exists() and _digest_below(target) != digest:
            target.rename(Path(part) / "not whole")
        try:
            folder.rename(target)
        except OSError as error:  # another command has kept the same files meanwhile
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        sync_folder(data)
    return target / below_root


def _named(job: Job) -> Iterator[tuple[str, str]]:
    workload = WORKLOADS[job.workload]
    for key in (*workload.inputs, *workload.folders):
        table, _, name = key.rpartition(".")
        value = ((job.settings[table] or {}) if table else job.settings).get(name)
        if isinstance(value, str) and value:
            yield key, value


def _files(path: Path, is_model: bool) -> tuple[Path, list[str]]:
    """The folder that all files lie below, and their names."""
    if path.is_dir():
        names = [f"{path.name}/{name}" for name in _names_below(path)]
    elif path.is_file():
        names = [path.name]
    else:
        raise Usage(f"there is no file or folder {path}", "check the path")
    root = path.parent
    if is_model:
        names += [f"{path.name}.sha256"] if path.with_name(f"{path.name}.sha256").is_file() else []
        if (root / _CONFIG).is_file():
            names.append(_CONFIG)
        elif not path.is_dir() and (root.parent / _CONFIG).is_file():
            root, names = root.parent, [*(f"{root.name}/{name}" for name in names), _CONFIG]
    return root, sorted(set(names))


def _names_below(folder: Path) -> list[str]:
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(root, name).relative_to(folder).as_posix() for name in names]
        if len(found) > _MOST_FILES:
            raise Usage(f"{folder} has more than {_MOST_FILES:,} files", "name a folder of the data alone")
    return sorted(name for name in found if (folder / name).is_file())


def _digest_below(folder: Path) -> str:
    listing = [f"{_sha256(folder / name)[0]}  {name}\n" for name in _names_below(folder)]
    return hashlib.sha256("".join(listing).encode("utf-8", "surrogateescape")).hexdigest()


def _sha256(path: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    try:
        with os.fdopen(open_regular(path, follow=True), "rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise Usage(f"cannot read {path}: {error.strerror}", "check the path") from error
    return digest.hexdigest(), size


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _folder(home: Home, digest: str) -> Path:
    if not _DIGEST.fullmatch(digest):
        raise Usage(f"{digest!r:.80} is not a SHA-256")
    return home.path / "data" / digest


def is_place(text: str) -> bool:
    """Whether the text is a path below a folder."""
    parts = PurePosixPath(text).parts
    return bool(parts) and not text.startswith("/") and ".." not in parts and "\0" not in text


def _clear_abandoned(data: Path) -> None:
    """What a killed command left behind."""
    for part in data.glob(".part-*"):
        try:
            if time.time() - part.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(part, ignore_errors=True)
        except OSError:
            continue  # another command was first
