"""The files that a job reads, by what is in them: another machine finds its own copy, or keeps one that is sent.

A digest is the SHA-256 of what `sha256sum` would print for the files, in the order of their names.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from kgops.errors import Usage
from kgops.jobs.files import open_regular
from kgops.jobs.job import Job
from kgops.jobs.workloads import WORKLOADS

__all__ = [
    "DataFiles",
    "data_files_of",
    "digest_below",
    "is_place",
    "names_below",
    "read_data_files",
    "size_of",
    "with_absolute_paths",
    "with_paths",
]

_BLOCK = 1 << 20
_MOST_FILES = 100_000
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
        names = [f"{path.name}/{name}" for name in names_below(path)]
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


def names_below(folder: Path) -> list[str]:
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(root, name).relative_to(folder).as_posix() for name in names]
        if len(found) > _MOST_FILES:
            raise Usage(f"{folder} has more than {_MOST_FILES:,} files", "name a folder of the data alone")
    return sorted(name for name in found if (folder / name).is_file())


def digest_below(folder: Path) -> str:
    listing = [f"{_sha256(folder / name)[0]}  {name}\n" for name in names_below(folder)]
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


def is_place(text: str) -> bool:
    """Whether the text is a path below a folder."""
    parts = PurePosixPath(text).parts
    return bool(parts) and not text.startswith("/") and ".." not in parts and "\0" not in text
