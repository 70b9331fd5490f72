"""What a disk may hold after a power cut: the home as it was at one moment, without some of what was not synced.

The model is the weak one of POSIX. What was written to a file counts once that file was synced, a name once its folder
was. Of what came later each file keeps any part of its writes, and each folder any first part of its changes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Operation:
    """One record: of a file by `ino`, at `offset`; of a name by `path`, and `other` where it was renamed to."""

    kind: str
    ino: int
    offset: int
    path: str
    other: str
    data: bytes


def operations(record: bytes) -> Iterator[Operation]:
    at = 0
    while at < len(record):
        end = record.index(b"\n", at)
        kind, *numbers = record[at:end].split()
        ino, offset, length, of_path, of_other = map(int, numbers)
        path_at = end + 1
        other_at = path_at + of_path
        data_at = other_at + of_other
        at = data_at + length + 1
        yield Operation(
            kind.decode(),
            ino,
            offset,
            record[path_at:other_at].decode(),
            record[other_at:data_at].decode(),
            record[data_at : at - 1],
        )


@dataclass(slots=True)
class _File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[str, int, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class _Move:
    """A rename from one folder to another: both have it, or neither, and either's sync settles it."""

    is_kept: bool = True
    is_durable: bool = False


class _Change(NamedTuple):
    what: str  # add, remove, rename
    name: str
    entry: _File | _Folder | None = None
    other: str = ""
    move: _Move | None = None


@dataclass(slots=True)
class _Folder:
    durable: dict[str, _File | _Folder] = field(default_factory=dict)
    pending: list[_Change] = field(default_factory=list)

    def now(self) -> dict[str, _File | _Folder]:
        return _entries(self, len(self.pending))


Choice = Callable[[random.Random, int], list[int]]  # which of so many pending changes the disk has

_NONE: Choice = lambda chance, many: []  # noqa: E731
_ALL: Choice = lambda chance, many: list(range(many))  # noqa: E731
_FIRST: Choice = lambda chance, many: list(range(chance.randint(0, many)))  # noqa: E731
_SOME: Choice = lambda chance, many: [n for n in range(many) if chance.random() < 0.5]  # noqa: E731

# Of each way: what files keep, and what folders keep.
WAYS: dict[str, tuple[Choice, Choice]] = {
    "nothing": (_NONE, _NONE),
    "everything": (_ALL, _ALL),
    "names": (_NONE, _ALL),
    "data": (_ALL, _NONE),
    "beginnings": (_FIRST, _FIRST),
    "anything": (_SOME, _FIRST),
}


class Disk:
    """Goes through a record, and can be cut off after any operation."""

    def __init__(self) -> None:
        self._root = _Folder()
        self._files: dict[int, _File] = {}
        self._moves: list[_Move] = []

    def apply(self, one: Operation) -> None:
        if one.kind in ("write", "size", "room"):
            if one.ino in self._files:
                self._files[one.ino].pending.append((one.kind, one.offset, one.data))
        elif one.kind == "sync":
            self._sync(one)
        elif one.path:
            self._change_names(one)

    def _sync(self, one: Operation) -> None:
        synced = self._files.get(one.ino) or self._find(one.path)
        if isinstance(synced, _File):
            synced.durable = _content(synced, range(len(synced.pending)))
        elif synced is not None:
            synced.durable = synced.now()
            for change in synced.pending:
                if change.move is not None:
                    change.move.is_durable = True
        if synced is not None:
            synced.pending.clear()

    def _change_names(self, one: Operation) -> None:
        folder, name = self._place(one.path)
        if one.kind == "create":
            made = self._files[one.ino] = _File()
            folder.pending.append(_Change("add", name, made))
        elif one.kind == "mkdir":
            folder.pending.append(_Change("add", name, _Folder()))
        elif one.kind == "unlink":
            self._files.pop(
                one.ino, None
            )  # its number may be given again; who has it open still writes for nobody
            folder.pending.append(_Change("remove", name))
        elif one.kind == "rename":
            into, other = self._place(one.other)
            if into is folder:
                folder.pending.append(_Change("rename", name, other=other))
                return
            self._moves.append(_Move())
            into.pending.append(_Change("add", other, folder.now()[name], move=self._moves[-1]))
            folder.pending.append(_Change("remove", name, move=self._moves[-1]))

    def _place(self, path: str) -> tuple[_Folder, str]:
        above, _, name = path.rpartition("/")
        folder = self._find(above)
        if not isinstance(folder, _Folder):
            raise ValueError(f"{path}: no folder of it was made")
        return folder, name

    def _find(self, path: str) -> _File | _Folder | None:
        found: _File | _Folder | None = self._root
        for name in filter(None, path.split("/")):
            found = found.now().get(name) if isinstance(found, _Folder) else None
        return found

    def cut(self, into: Path, way: str, seed: int) -> None:
        """Writes a disk that may be left, made by `way`; `seed` chooses where there is a choice."""
        chance = random.Random(seed)
        of_file, of_folder = WAYS[way]
        for move in self._moves:
            move.is_kept = move.is_durable or bool(of_folder(chance, 1))
        _write(self._root, into, chance, of_file, of_folder)
        for move in self._moves:
            move.is_kept = True  # as they are while the record goes on


def _write(folder: _Folder, into: Path, chance: random.Random, of_file: Choice, of_folder: Choice) -> None:
    into.mkdir(mode=0o700)
    kept = len(of_folder(chance, len(folder.pending)))
    for name, entry in sorted(_entries(folder, kept).items()):
        if isinstance(entry, _Folder):
            _write(entry, into / name, chance, of_file, of_folder)
        else:
            (into / name).write_bytes(_content(entry, of_file(chance, len(entry.pending))))
            (into / name).chmod(0o600)


def _entries(folder: _Folder, kept: int) -> dict[str, _File | _Folder]:
    entries = dict(folder.durable)
    for n, change in enumerate(folder.pending):
        if not (n < kept if change.move is None else change.move.is_kept):
            continue
        if change.what == "add" and change.entry is not None:
            entries[change.name] = change.entry
        elif change.what == "remove":
            entries.pop(change.name, None)
        elif change.name in entries:
            entries[change.other] = entries.pop(change.name)
    return entries


def _content(file: _File, kept: range | list[int]) -> bytearray:
    content = bytearray(file.durable)
    for n in kept:
        what, offset, data = file.pending[n]
        if what == "size":
            del content[offset:]
            content.extend(bytes(offset - len(content)))
        elif what == "room":
            content.extend(bytes(max(offset - len(content), 0)))
        else:  # where what stood before it is missing, zeros are read
            content.extend(bytes(max(offset - len(content), 0)))
            content[offset : offset + len(data)] = data
    return content
