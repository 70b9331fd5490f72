"""Durable files: after any of these returns, a power cut does not take the file back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    """A reader finds the old file or the new one, never half of one and never none."""
    # A process ID says nothing where other machines write to the same folder.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(6).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    except BaseException:
        os.close(fd)
        temporary.unlink(missing_ok=True)
        raise
    os.close(fd)
    os.replace(temporary, path)  # noqa: PTH105 - named for what it promises: replaced in one step
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path: Path, value: Any) -> None:
    write_durably(path, json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "surrogateescape"))


def read_json(path: Path) -> Any:
    """None where there is no such file or it is not whole."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
