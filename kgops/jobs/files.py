"""Files of runs and of people: read within limits, and written atomically."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from kgops.errors import BadJob, KgopsError, Unavailable, Usage

ROOM = "room.reserved"  # in a run's folder, while its worker runs: disk space for the record of its end


def read_named(path: Path, what: str, largest: int) -> str:
    """The text in the file at `path`, which may be a link; refused by its name, unread where it is no file."""
    try:
        content = read_regular(path, at_most=largest + 1, follow=True)
    except NotAFile as error:
        raise Usage(
            f"cannot read the {what} {path}: {error.strerror}", f"write the {what} to a file, and name that"
        ) from error
    except OSError as error:
        raise Usage(f"cannot read the {what} {path}: {os.strerror(error.errno or 0)}") from error
    if len(content) > largest:
        size = f"{largest >> 20} MiB" if largest >> 20 else f"{largest >> 10} KiB"
        raise BadJob(str(path), [f"larger than {size}: this is no {what}"])
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadJob(str(path), [f"not UTF-8 at byte {error.start}"]) from error


_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)


class NotAFile(OSError):
    """Something else stands where a regular file was expected; `strerror` says what."""

    def __init__(self, path: Path, mode: int) -> None:
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "a device")
        super().__init__(errno.EINVAL, f"it is {kind}, not a file", str(path))


# The file does not exist. After any other OSError this is unknown: callers try again.
ABSENT = (FileNotFoundError, NotADirectoryError, NotAFile)


def open_regular(path: Path, flags: int = os.O_RDONLY, *, follow: bool = False) -> int:
    """A descriptor of the regular file at `path`; NotAFile for anything else, without waiting for a pipe.

    `follow` is for paths that a person typed: those may be symbolic links.
    """
    nofollow = 0 if follow else os.O_NOFOLLOW
    try:
        # O_NONBLOCK: opening a pipe would wait for its writer.
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | nofollow, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            try:
                mode = (path.stat() if follow else path.lstat()).st_mode
            except OSError:
                raise error from None
            if not stat.S_ISREG(mode):
                raise NotAFile(path, mode) from error
        raise
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise NotAFile(path, mode)
    return fd


def read_regular(path: Path, *, at_most: int | None = None, follow: bool = False) -> bytes:
    """What the regular file at `path` holds, or its first `at_most` bytes."""
    with os.fdopen(open_regular(path, follow=follow), "rb") as file:
        return file.read() if at_most is None else file.read(at_most)


def size_of(path: Path) -> int:
    """Size of a regular file in bytes, else 0."""
    try:
        status = path.lstat()
    except ABSENT:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def set_aside(path: Path) -> Path | None:
    """Renames anything but a regular file at `path`; its new path, or None where nothing had to move."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISREG(mode):
        return None
    aside = _aside(path)
    path.rename(aside)
    return aside


def set_link_aside(path: Path) -> bool:
    """Renames a link at `path`; whether there was one."""
    return path.is_symlink() and set_aside(path) is not None


def open_own(path: Path, flags: int) -> int:
    """A descriptor to write to a file of a run. Anything else at its path is renamed: what is no file, and a file with
    a second name (a hard link), which may be somebody else's."""
    try:
        fd = open_regular(path, flags | os.O_CREAT)
        if os.fstat(fd).st_nlink == 1:
            return fd
        os.close(fd)
        path.rename(_aside(path))
    except NotAFile:
        set_aside(path)
    return open_regular(path, flags | os.O_CREAT)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.not-a-file-{time.time_ns()}")


def write_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Writes atomically and durably: the file survives a power cut, and readers see the old or the new one, whole."""
    # A process ID is not unique where several machines write to one folder.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(6).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        try:
            os.replace(temporary, path)  # noqa: PTH105 - named for what it promises: replaced in one step
        except IsADirectoryError:
            set_aside(path)
            os.replace(temporary, path)  # noqa: PTH105  as above
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Waits until the file or folder is on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A draft beside the file, which gets the file's name only when it is complete."""
    draft = path.with_name(f".{path.name}.part")
    try:
        yield draft
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    draft.replace(path)
    sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_durably(path, json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "surrogateescape"))


def read_json(path: Path, *, follow: bool = False) -> Any:
    """The JSON value in the file; None where it is absent or incomplete. OSError: its content is unknown."""
    try:
        return json.loads(read_regular(path, follow=follow))
    except (*ABSENT, ValueError, RecursionError):
        return None


def read_table(path: Path) -> dict[str, Any]:
    """The JSON object in the file; empty where there is none."""
    table = read_json(path)
    return table if isinstance(table, dict) else {}


def import_pyarrow(hint: str = "pip install 'kgops[parquet]'", error: type[KgopsError] = Unavailable) -> Any:
    """pyarrow with its Parquet files; raises `error` with the hint where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as missing:
        raise error("Parquet needs pyarrow, which is not installed.", hint) from missing
    return pyarrow


def home_of(path: Path) -> Path | None:
    """The home that the path is, or whose `runs/` or `pending/` it is in; links are not followed."""
    for above in (path, *path.parents):
        inside = path.relative_to(above).parts[:1]
        if inside in ((), ("runs",), ("pending",)) and (above / "kgops.db").is_file():
            return above
    return None


def run_of(path: Path) -> Path | None:
    """The run's folder that the path is in, or is; it may be outside any home."""
    for above in (path, *path.parents):
        if (above / "plan.json").is_file() and (
            (above / "outcome.slot").is_file() or (above / "record.json").is_file()
        ):
            return above
    return None


_BLOCK = 1 << 16


def write_with_holes(file: BinaryIO, data: bytes) -> int:
    """Adds the data at the end of the file, its zeros as holes; the number of bytes that take room."""
    written = 0
    for begin in range(0, len(data), _BLOCK):
        block = data[begin : begin + _BLOCK]
        if block == bytes(len(block)):
            file.truncate(file.seek(0, os.SEEK_END) + len(block))
            file.seek(0, os.SEEK_END)
        else:
            written += file.write(block)
    return written
