"""Data that other machines sent here, each once, in folders named by their digest; a copy that broke off goes on."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kgops.errors import BadInput, CutOff, KgopsError, Usage
from kgops.interchange.data_files import digest_below, names_below
from kgops.jobs.files import sync
from kgops.settings import Home
from kgops.supervisor import locks

__all__ = ["bytes_of_part", "find_kept", "keep"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_ABANDONED_S = 24 * 3600.0


def find_kept(home: Home, digest: str, below_root: str) -> Path | None:
    """Where files of this digest lie among those that were sent here."""
    kept = _folder(home, digest) / below_root
    try:
        is_whole = digest_below(_folder(home, digest)) == digest
    except (OSError, Usage):
        return None
    return kept if is_whole and kept.exists() else None


def bytes_of_part(home: Home, digest: str) -> int:
    """How much of these files came before their copy broke off; 0 while another command copies them."""
    try:
        part = _part(home, digest)
        return 0 if locks.is_held(part / "lock") else _size_below(part / "files")
    except (OSError, Usage):
        return 0


def keep(home: Home, digest: str, below_root: str, begun: int, unpack: Callable[[Path], object]) -> Path:
    """Keeps what `unpack` writes into a folder, once, after the `begun` bytes that are there. BadInput if it is
    something else than its digest says; CutOff if more has to come, and what came is kept for it."""
    target, data = _folder(home, digest), home.path / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    _clear_abandoned(data)
    part = _part(home, digest)
    part.mkdir(mode=0o700, exist_ok=True)
    os.utime(part)
    lock = locks.take(part / "lock")
    if lock is None:  # another command copies the same files: neither waits for the other
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=data))
        lock = locks.take(part / "lock")
    try:
        _fill(part / "files", digest, below_root, begun, unpack)
        _publish(part, target, digest)
    except (KgopsError, OSError) as error:
        if not isinstance(error, CutOff) or part != _part(home, digest):
            shutil.rmtree(part, ignore_errors=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)
    sync(data)
    return target / below_root


def _fill(folder: Path, digest: str, below_root: str, begun: int, unpack: Callable[[Path], object]) -> None:
    if not begun:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    if _size_below(folder) != begun:
        raise BadInput("what came of these files before is not there any more", _AGAIN)
    unpack(folder)
    if digest_below(folder) != digest or not (folder / below_root).exists():
        raise BadInput("the files that came are not those that were announced", _AGAIN)
    for name in names_below(folder):
        sync(folder / name)


def _publish(part: Path, target: Path, digest: str) -> None:
    if target.exists() and digest_below(target) != digest:
        target.rename(part / "not whole")
    try:
        (part / "files").rename(target)
    except OSError as error:  # another command has kept the same files meanwhile
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    shutil.rmtree(part, ignore_errors=True)


_AGAIN = "send them again"


def _folder(home: Home, digest: str) -> Path:
    if not _DIGEST.fullmatch(digest):
        raise Usage(f"{digest!r:.80} is not a SHA-256")
    return home.path / "data" / digest


def _part(home: Home, digest: str) -> Path:
    folder = _folder(home, digest)
    return folder.with_name(f".part-{folder.name}")


def _size_below(folder: Path) -> int:
    return sum((folder / name).stat().st_size for name in names_below(folder))


def _clear_abandoned(data: Path) -> None:
    """Parts that nobody copies, and nobody went on with for a day."""
    for part in data.glob(".part-*"):
        try:
            old = time.time() - part.stat().st_mtime > _ABANDONED_S
            if old and not locks.is_held(part / "lock"):
                shutil.rmtree(part, ignore_errors=True)
        except OSError:
            continue  # another command was first
