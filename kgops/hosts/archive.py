"""The folder of a run as a tar stream: unpacked here without trusting a name, a kind or a size in it."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple, Protocol

from kgops.errors import BadInput, KgopsError, Unavailable
from kgops.hosts.connection import ByteStream, Connection, Limits, meaning_of
from kgops.hosts.registry import Host
from kgops.jobs.files import write_with_holes
from kgops.settings import Home
from kgops.supervisor.run_json import read_runs
from storage.database import Connection as Database
from storage.transfer import Rows

_LEFT_BEHIND = frozenset({"private.json", "supervisor.lock", "worker.lock", "supervisor.log"})
_MOST_FILES, _DEEPEST, _LONGEST_NAME = 100_000, 12, 255
_BLOCK, _TAR_BLOCK, _DISK_BLOCK = 1 << 20, 512, 4096
_LARGEST, _LARGEST_EXTENDED = 1 << 50, 1 << 14
_DATA = "KGOPS.data"  # bytes of an entry with holes that take room
_LATEST = 1 << 33
# Of the disk an archive leaves free what runs write meanwhile: this share of it, or so many bytes.
_SPARE_SHARE, _MOST_SPARE = 8, 1 << 28


class NoSpace(Unavailable):
    """On the disk of this machine, not of the one that sends."""


def write_archive(folder: Path, out: BinaryIO) -> None:
    """The regular files of a run that has ended. No owner and no link goes along."""
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name, path in _files_of_run(folder):
            with path.open("rb") as file:
                _add(archive, name, file)


def _add(archive: tarfile.TarFile, name: str, file: BinaryIO) -> None:
    entry = tarfile.TarInfo(name)
    status = os.fstat(file.fileno())
    entry.size, entry.mtime, entry.mode = status.st_size, int(status.st_mtime), 0o600
    if (held := status.st_blocks * 512) + _BLOCK < status.st_size:
        entry.pax_headers = {_DATA: str(held)}
    archive.addfile(entry, file)


def _files_of_run(folder: Path) -> Iterator[tuple[str, Path]]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            if not path.is_symlink() and path.is_file() and name not in _LEFT_BEHIND:
                yield path.relative_to(folder).as_posix(), path


def unpack(stream: Stream, target: Path) -> int:
    """Writes the files of the stream below `target`, an empty folder; the number of bytes. BadInput: no archive."""
    count = taken = total = 0
    room = _Room.on(target)
    try:
        for entry in _entries(stream):
            parts = _parts_of(entry)
            count += 1
            if count > _MOST_FILES:
                raise BadInput(f"the archive has more than {_MOST_FILES:,} files")
            taken += len(parts) * _DISK_BLOCK  # each folder and the rest of a file take a block of the disk
            room.must_have(taken, _without_holes(entry))
            taken += _write(stream, entry, target.joinpath(*parts), partial(room.must_have, taken))
            total += entry.size
    except tarfile.TarError as error:
        raise BadInput(f"what came is no archive of files: {error}") from error
    return total


class _Room(NamedTuple):
    free: int
    spare: int
    place: Path

    @classmethod
    def on(cls, target: Path) -> _Room:
        free = shutil.disk_usage(target).free
        return cls(free, min(free // _SPARE_SHARE, _MOST_SPARE), target.parents[1])

    def must_have(self, *sizes: int) -> None:
        size = sum(sizes)
        if size > self.free - self.spare:
            raise NoSpace(
                f"the archive takes {_mib(size)} or more; {_mib(self.free)} are free in {self.place},"
                f" and {_mib(self.spare)} of them are kept free",
                "free some disk space there",
            )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def _without_holes(entry: tarfile.TarInfo) -> int:
    return min(_number(entry.pax_headers.get(_DATA), entry.size), entry.size)


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) <= 18 else otherwise


def _entries(stream: Stream) -> Iterator[tarfile.TarInfo]:
    """Headers of regular files; each one's content has to be read before the next.

    `tarfile` itself would hold the names, sparse maps and extended headers of any size that a stream announces.
    """
    while (block := _exactly(stream, _TAR_BLOCK)) != bytes(_TAR_BLOCK):
        entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        more: dict[str, str] = {}
        if entry.type == tarfile.XHDTYPE:
            more = _extended(stream, entry.size)
            entry = tarfile.TarInfo.frombuf(_exactly(stream, _TAR_BLOCK), "utf-8", "surrogateescape")
        entry.name = more.get("path", entry.name)
        entry.size = _number(more.get("size"), entry.size)
        entry.pax_headers = more
        if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or not 0 <= entry.size <= _LARGEST:
            raise BadInput(f"the archive has an entry that is no file to keep: {entry.name!r:.100}")
        yield entry


def _extended(stream: Stream, size: int) -> dict[str, str]:
    """Name and size where the header of a file has no room for them. Lines are `27 path=…`, with their length."""
    if not 0 <= size <= _LARGEST_EXTENDED:
        raise BadInput(f"the archive has a header of {size:,} bytes")
    text = _exactly(stream, _up_to(size, _TAR_BLOCK))[:size]
    found: dict[str, str] = {}
    while text:
        number, _, _ = text.partition(b" ")
        length = int(number) if number.isdigit() and len(number) <= 5 else 0
        name, equals, value = text[len(number) + 1 : max(length - 1, 0)].partition(b"=")
        if not equals:
            raise BadInput("the archive has a header that is none")
        found[name.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        text = text[length:]
    return found


def _parts_of(entry: tarfile.TarInfo) -> tuple[str, ...]:
    parts = PurePosixPath(entry.name).parts
    odd = any(part in ("..", "/") or "\0" in part or len(os.fsencode(part)) > _LONGEST_NAME for part in parts)
    if odd or not 0 < len(parts) <= _DEEPEST or entry.name.startswith("/"):
        raise BadInput(f"the archive has an entry that is no file to keep: {entry.name!r:.100}")
    return parts


def _write(stream: Stream, entry: tarfile.TarInfo, path: Path, must_fit: Callable[[int], None]) -> int:
    """The bytes that take room. `must_fit` hears of them as they come: an entry may announce fewer."""
    written = 0
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Nothing but this writes below the folder: what is there already came in the same archive.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except (FileExistsError, NotADirectoryError) as error:
        raise BadInput(f"the archive has two entries of one name: {entry.name!r:.100}") from error
    with os.fdopen(fd, "wb") as file:
        for begin in range(0, entry.size, _BLOCK):
            written += write_with_holes(file, _exactly(stream, min(_BLOCK, entry.size - begin)))
            must_fit(written)
        _exactly(stream, -entry.size % _TAR_BLOCK)
        file.flush()
        if 0 <= entry.mtime < _LATEST:  # a log's age is the time of its file
            os.utime(file.fileno(), (entry.mtime, entry.mtime))
    return written


def _exactly(stream: Stream, size: int) -> bytes:
    block = stream.read(size) if size else b""
    if len(block) < size:
        raise BadInput("what came is no archive of files: it is cut off")
    return block


def _up_to(size: int, block: int) -> int:
    """In whole blocks."""
    return -(-size // block) * block


class Stream(Protocol):
    def read(self, size: int, /) -> bytes:
        """All of that size, or less at the end alone."""


# Curves of three hundred thousand points, as text and as values.
_LARGEST_RECORD, _MOST_VALUES = 1 << 24, 1_500_000


def fetch_record(home: Home, conn: Database, host: Host, number: str) -> Rows:
    """Rows of the one run. Unavailable or BadInput, by the host's name, where there are none."""
    words = ("export", "--to", "json", "--output", "-", "--", number)
    text = fetch_bytes(home, host, words, _LARGEST_RECORD)
    # kgops writes ASCII: other text would take four times its room.
    if not text.isascii() or sum(map(text.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise Unavailable(f"{host.name}: what it sent is no record that kgops reads")
    found = read_runs(conn, text, f"{host.name}:{number}")
    if len(found) != 1:
        raise Unavailable(f"{host.name}: it sent {len(found)} runs for one")
    return found[0]


def fetch_bytes(home: Home, host: Host, words: Sequence[str], most: int) -> bytes:
    """What the command prints there; Unavailable, by the host's name, if it fails or prints more."""
    connection = Connection(home, host, words, Limits())
    stream = ByteStream(connection)
    found, problem = b"", None
    try:
        found = stream.read(most + 1)
    except KgopsError as error:
        problem = error
    finally:
        stream.close()
        code = connection.close(has_ended=stream.has_ended)
    if problem is not None:
        raise Unavailable(f"{host.name}: {problem.message}", problem.hint)
    if len(found) > most:
        raise Unavailable(f"{host.name}: it sent more than {most >> 20} MiB")
    if code != 0:
        message, hint = meaning_of(code, connection.errors, host)
        raise Unavailable(f"{host.name}: {message}", hint)
    return found
