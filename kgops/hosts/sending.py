"""Copies the files that a job reads to another host, once: by what is in them, over the connection that is there."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, TypeGuard, cast

from kgops.errors import BadInput, CutOff, KgopsError, Unavailable
from kgops.hosts.archive import write_files
from kgops.hosts.ask import ask, bounded_json
from kgops.hosts.connection import SSH_FAILED, Connection, Limits, meaning_of
from kgops.hosts.registry import Host
from kgops.interchange.data_files import DataFiles, data_files_of, with_paths
from kgops.jobs.job import Job
from kgops.settings import Home

__all__ = ["Progress", "send_data"]

Progress = Callable[[str, int, int], None]  # name, bytes sent, bytes in all

_HASHING_S = 3600.0  # of what lies there
_STUCK_S = 120.0  # without a byte taken or an answer
_EVERY_S = 0.25
_LONGEST_PATH = 4096
_MOST_WORDS = 1 << 16  # bytes that a host says of a copy


def send_data(home: Home, host: Host, job: Job, progress: Progress) -> Job:
    """The job with paths of that host. Files that do not lie there are copied; `progress` hears of it."""
    data = data_files_of(job)
    if not data:
        return job
    found = _find(home, host, data)
    roots: dict[str, str] = {}  # of what was sent: the same files named twice are sent once
    paths: dict[str, str] = {}
    for (key, one), place in zip(data.items(), found, strict=True):
        if isinstance(place, str):
            paths[key] = place
        elif one.digest in roots:
            paths[key] = roots[one.digest] + one.below_root
        else:
            paths[key] = _send(home, host, one, place or 0, progress)
            roots[one.digest] = paths[key].removesuffix(one.below_root)
    return with_paths(job, paths)


def _find(home: Home, host: Host, data: Mapping[str, DataFiles]) -> list[str | int | None]:
    """Where each lies there, or how much of it came before a copy broke off."""
    wanted = [
        {
            "path": str(one.path),
            "is_model": one.is_model,
            "size": one.size,
            "digest": one.digest,
            "below_root": one.below_root,
        }
        for one in data.values()
    ]
    (answer,) = ask(
        home, [host], ("data", "find", "--json"), _HASHING_S, said=json.dumps(wanted).encode("ascii")
    )
    if answer.problem is not None:
        raise Unavailable(f"{host.name}: {answer.problem}", answer.hint)
    listed = bounded_json(answer.out)
    if not isinstance(listed, list) or len(listed) != len(data):
        raise Unavailable(
            f"{host.name}: what it printed is not a list of paths", "`kgops hosts check` tries it"
        )
    return [
        place if place is None or _is_part(place, one) else _path(host, place)
        for one, place in zip(data.values(), listed, strict=True)
    ]


def _is_part(said: object, one: DataFiles) -> TypeGuard[int]:
    return isinstance(said, int) and not isinstance(said, bool) and 0 < said <= one.size


def _path(host: Host, said: object) -> str:
    # Not printable are controls, and bytes that are no text, which no job can hold.
    if (
        not isinstance(said, str)
        or not said.startswith("/")
        or len(said) > _LONGEST_PATH
        or not said.isprintable()
    ):
        raise Unavailable(f"{host.name}: what it printed is not a path", "`kgops hosts check` tries it")
    return said


def _send(home: Home, host: Host, data: DataFiles, begun: int, progress: Progress) -> str:
    """The path there. The first `begun` bytes are there already."""
    read_end, write_end = os.pipe()
    sender = _Sender(data, begun, cast(BinaryIO, os.fdopen(write_end, "wb")))
    words = ("data", "keep", *([f"--begun={begun}"] if begun else []), "--", data.digest, data.below_root)
    try:
        with os.fdopen(read_end, "rb") as source:
            connection = Connection(home, host, words, Limits.in_all(_MOST_WORDS, _MOST_WORDS), source=source)
    except BaseException:
        sender.close()
        raise
    sender.start()
    has_ended = False
    lines: list[bytes] = []
    try:
        patience = _Patience(sender, host, lambda sent: progress(data.path.name, sent, data.size))
        lines = connection.lines_to_the_end(patience.seconds_left) or []
        has_ended = True
    finally:
        code = connection.close(has_ended=has_ended)
        sender.join()
    if sender.problem is not None and code in (0, 2, None):
        raise Unavailable(f"{data.path} could not be read to its end: {sender.problem}", "try again")
    if code == BadInput.exit_code and begun:  # what was there is damaged, or in use
        return _send(home, host, data, 0, progress)
    if code != 0:
        message, hint = meaning_of(code, connection.errors, host)
        if code in (None, SSH_FAILED, CutOff.exit_code):
            hint = "the same command goes on with the copy where it broke off"
        raise Unavailable(f"{host.name}: {data.path.name} was not copied: {message}", hint)
    progress(data.path.name, data.size, data.size)
    return _path(host, b"".join(lines).decode("utf-8", "surrogateescape"))


class _Patience:
    """Tells of each byte that is taken. Unavailable if neither a byte is taken nor the copy done for long."""

    def __init__(self, sender: _Sender, host: Host, hear: Callable[[int], None]) -> None:
        self._sender, self._host, self._hear = sender, host, hear
        self._sent, self._moved_at = 0, time.monotonic()

    def seconds_left(self) -> float:
        now = time.monotonic()
        if self._sender.sent != self._sent:
            self._sent, self._moved_at = self._sender.sent, now
            self._hear(self._sent)
        # It reads all files once more before it answers: that takes as long as they are large.
        elif now - self._moved_at > _STUCK_S + self._sent / 2**26:
            raise Unavailable(f"{self._host.name}: no byte was taken for {now - self._moved_at:.0f} s")
        return _EVERY_S


class _Sender(threading.Thread):
    """Writes the files into the pipe that the connection reads."""

    def __init__(self, data: DataFiles, begun: int, out: BinaryIO) -> None:
        super().__init__(name="kgops-sender", daemon=True)
        self._data, self._begun, self._out = data, begun, out
        self.sent = begun
        self.problem: str | None = None

    def close(self) -> None:
        self._out.close()

    def run(self) -> None:
        try:
            with self._out:
                counting = cast(BinaryIO, _Counting(self._out, self._count))
                files = ((name, self._data.root / name) for name in self._data.files)
                write_files(files, counting, self._begun)
        except BrokenPipeError:
            pass  # the connection ended; its exit code says why
        except (OSError, KgopsError) as error:
            self.problem = str(error)

    def _count(self, size: int) -> None:
        self.sent += size


@dataclass(slots=True)
class _Counting:
    out: BinaryIO
    count: Callable[[int], None]

    def write(self, block: bytes) -> int:
        written = self.out.write(block)
        self.count(len(block))
        return written
