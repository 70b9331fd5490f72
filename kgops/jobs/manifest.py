"""Result manifest: a run succeeds only with a valid manifest of its results, not by its exit code.

It names the run and attempt that wrote it, so that a manifest from an older results folder is not accepted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from kgops.jobs.events import is_metric
from kgops.jobs.files import ABSENT, NotAFile, open_regular, read_regular, sync, write_durably

# In a worker's environment: the key of its run and the number of its attempt, as `owner` puts them together.
OWNER = "KGOPS_RESULT_OWNER"


def owner(key: str, attempt: int) -> str:
    return f"{key}#{attempt}"


@dataclass(frozen=True, slots=True)
class ResultFile:
    path: str  # inside the run's folder
    kind: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    files: tuple[ResultFile, ...]
    metrics: dict[str, float]


def write(
    path: Path,
    files: Iterable[ResultFile],
    metrics: dict[str, float],
    *,
    written_by: str | None = None,
) -> Manifest:
    """Names files that are complete and durable, as `describe` says of them.

    `written_by` is the owner; without it that of this process, where it is a worker.
    """
    manifest = Manifest(tuple(files), metrics)
    path.parent.mkdir(exist_ok=True)
    body = {
        "files": [asdict(file) for file in manifest.files],
        "metrics": {name: value for name, value in metrics.items() if is_metric(value)},
        "owner": written_by or os.environ.get(OWNER),
    }
    write_durably(path, json.dumps(body, indent=1).encode())
    return manifest


def describe(root: Path, files: Iterable[tuple[Path, str]]) -> list[ResultFile]:
    """With digests. They are durable afterwards."""
    return [_describe(root, file, kind) for file, kind in files]


def _describe(root: Path, file: Path, kind: str) -> ResultFile:
    sync(file)
    sync(file.parent)
    digest, size = digest_of(file)
    return ResultFile(str(file.relative_to(root)), kind, digest, size)


def digest_of(file: Path) -> tuple[str, int]:
    import hashlib  # here: OpenSSL takes 3 MB, and a supervisor needs it only at the end

    digest = hashlib.sha256()
    size = 0
    with os.fdopen(open_regular(file, follow=True), "rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


def read(path: Path, *, owners: frozenset[str] | None = None) -> tuple[Manifest | None, str | None]:
    """A manifest that holds, or why there is none. Every file it names is read and compared.

    With `owners`, a manifest of any other owner is invalid.
    """
    try:
        body = json.loads(read_regular(path))
    except NotAFile as error:
        return None, f"the result manifest cannot be read: {error.strerror}"
    except ABSENT:
        return None, None
    except (ValueError, RecursionError):
        return None, "the result manifest is not JSON"
    try:
        if owners is not None and body.get("owner") not in owners:
            return None, "the result manifest is of another run or attempt"
        files = tuple(ResultFile(str(f["path"]), f["kind"], f["sha256"], f["bytes"]) for f in body["files"])
        metrics = {str(name): float(value) for name, value in body["metrics"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None, "the result manifest was not written by kgops"
    root = path.parent.parent
    for file in files:
        target = root / file.path
        try:
            inside = target.resolve().is_relative_to(root.resolve())
        except (ValueError, RuntimeError, OSError):  # a NUL in it, links in a circle, a name too long
            inside = False
        if not inside:
            return None, f"the result manifest names {file.path!r:.200}, outside the run's folder"
        try:
            if digest_of(target) != (file.sha256, file.bytes):
                return None, f"{file.path} is not what the result manifest says"
        except NotAFile:
            return None, f"{file.path}, named by the result manifest, is no file"
        except FileNotFoundError as error:
            return None, f"{file.path}, named by the result manifest: {os.strerror(error.errno or 0)}"
    return Manifest(files, metrics), None
