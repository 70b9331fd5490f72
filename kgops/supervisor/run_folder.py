"""The folder of a run, with room reserved for its last word."""

from __future__ import annotations

import json
import math
import os
import re
import time
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kgops.errors import Unavailable
from kgops.jobs.files import (
    ABSENT,
    ROOM,
    home_of,
    open_own,
    read_json,
    read_regular,
    read_table,
    set_link_aside,
    sync,
)
from kgops.jobs.folders import Folder, Inside

SIZE = 4096
_ROOM = 128 << 10  # bytes: what the database takes to record an end and the last events before it
_MAX_REASON = 1000
_REASON_BYTES = SIZE - 512  # for the reason: the rest of an ending is far shorter


@dataclass(frozen=True, slots=True)
class Ending:
    """A run's decided end."""

    state: str
    reason: str | None
    exit_code: int | None
    attempt: int
    ended_at: float


def reserve(path: Path) -> None:
    """Allocates an empty slot; clears an existing one."""
    fd = open_own(path, os.O_RDWR)
    try:
        os.posix_fallocate(fd, 0, SIZE)
        os.pwrite(fd, bytes(SIZE), 0)
        os.fsync(fd)
    finally:
        os.close(fd)


def fill(path: Path, table: dict[str, Any]) -> None:
    """Writes in place, needing no new block or name. A half-written slot reads as empty."""
    body = json.dumps(table).encode()
    content = b"kgops %08x %06d\n" % (zlib.crc32(body), len(body)) + body
    if len(content) > SIZE:
        raise ValueError(f"{len(content)} bytes do not fit a slot")
    fd = open_own(path, os.O_RDWR)
    try:
        os.pwrite(fd, content.ljust(SIZE, b"\0"), 0)
        os.fsync(fd)
    finally:
        os.close(fd)


def read(path: Path) -> dict[str, Any] | None:
    """The slot's content; None if empty, half written or missing."""
    try:
        head, _, rest = read_regular(path, at_most=SIZE).partition(b"\n")
        name, checksum, length = head.split()
        body = rest[: int(length)]
        if name == b"kgops" and zlib.crc32(body) == int(checksum, 16):
            table = json.loads(body)
            return table if isinstance(table, dict) else None
    except (*ABSENT, ValueError, RecursionError):
        pass
    return None


def write_ending(path: Path, ending: Ending) -> None:
    """Writes the ending; shortens the reason to fit: in JSON a character may take up to twelve bytes."""
    reason = ending.reason[:_MAX_REASON] if ending.reason else None
    while reason and len(json.dumps(reason)) > _REASON_BYTES:
        reason = reason[: len(reason) * 3 // 4]
    fill(path, {**asdict(ending), "reason": reason})


def read_ending(path: Path) -> Ending | None:
    table = read(path)
    try:
        return Ending(**table) if table else None
    except TypeError:
        return None


def request_stop(folder: RunFolder, grace_s: float) -> None:
    """Requests a stop, without the database or disk space. The supervisor sees it within a tick; a second request
    changes the grace."""
    fill(folder.stop, {"grace_s": grace_s, "at": time.time()})


def read_stop(folder: RunFolder) -> float | None:
    """The grace in seconds of a requested stop; None if none was requested."""
    table = read(folder.stop)
    if table is None:
        return None
    try:
        grace_s = float(table["grace_s"])
    except (TypeError, KeyError, ValueError):
        return 0.0  # a written slot: a stop was requested
    return grace_s if math.isfinite(grace_s) else 0.0


def keep_room(folder: RunFolder) -> None:
    """Keeps disk space for the database, until `give_room`. Where there is none, a run goes on without."""
    with suppress(OSError):
        fd = open_own(folder.room, os.O_RDWR)
        try:
            os.posix_fallocate(fd, 0, _ROOM)
        finally:
            os.close(fd)


def give_room(folder: RunFolder) -> None:
    with suppress(OSError):
        folder.room.unlink(missing_ok=True)


class RunFolder(Folder):
    """A run's folder, such as `runs/0042-train-nations`."""

    __slots__ = ()
    job = Inside("job.toml")
    plan = Inside("plan.json")  # resolved, which the supervisor reads
    environment = Inside("environment.json")
    private = Inside("private.json")  # unmasked environment and command; removed when the run ends
    log = Inside("worker.log")
    events = Inside("events.jsonl")
    supervisor_log = Inside("supervisor.log")
    supervisor_lock = Inside("supervisor.lock")
    worker_lock = Inside("worker.lock")
    stop = Inside("stop.slot")  # the stop request and its grace
    outcome = Inside("outcome.slot")
    room = Inside(ROOM)  # disk space kept while a worker runs, so that its end can be recorded on a full disk
    record = Inside("record.json")  # of an imported run: its rows, in the format of `kgops export`
    origins = Inside("imported.json")  # of a folder copied from another home: each import's origin
    results = Inside("results")  # as the group's scripts write it: models, metrics and `checkpoints/`
    manifest = Inside("results/manifest.json")
    attempts = Inside("attempts")

    def attempt(self, number: int) -> AttemptFolder:
        return AttemptFolder(self.attempts / str(number))

    def last_attempt(self) -> int:
        """Highest attempt number, 0 if none. From the folder: a power cut can undo a row."""
        if not self.attempts.is_dir():
            return 0
        return max(
            (int(p.name) for p in self.attempts.iterdir() if re.fullmatch(r"[1-9][0-9]{0,5}", p.name)),
            default=0,
        )


class AttemptFolder(Folder):
    __slots__ = ()
    identity = Inside("identity.json")  # of the gate's process; on disk before the worker runs
    begun = Inside("begun")  # exists once the worker's code may have run
    asked_to_stop = Inside(
        "asked-to-stop"
    )  # exists once a stop was sent: exit code 0 after that is no success
    exit = Inside("exit.slot")  # the worker's exit, written by its gate
    closed = Inside("closed.json")  # the attempt's outcome, to restore the database from

    def reserve_marks(self) -> None:
        """Creates both marks beforehand: on a full disk a file can be renamed but not created."""
        for mark in (self.begun, self.asked_to_stop):
            _reserved(mark).touch(0o600)

    def mark_begun(self) -> None:
        _set(self.begun)

    def mark_asked_to_stop(self) -> None:
        _set(self.asked_to_stop)


def _reserved(mark: Path) -> Path:
    return mark.with_name(f".{mark.name}.reserved")


def _set(mark: Path) -> None:
    try:
        _reserved(mark).rename(mark)
    except FileNotFoundError:  # set already, or removed by the worker
        mark.touch(0o600)
    sync(mark.parent)  # a power cut must not undo the mark but keep its effects


def folder_name(number: int, workload: str, label: str) -> str:
    """Letters, digits and dashes only, for any label and workload."""
    kind, slug = _slug(workload) or "run", _slug(label)
    return f"{number:04d}-{kind}" + (f"-{slug}" if slug and slug != kind else "")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-")


def number_of(name: str) -> int | None:
    head = name.partition("-")[0]
    return int(head) if re.fullmatch(r"[0-9]{4,12}", head) else None


_MOST_LINKS = 40  # as the kernel follows


def is_own(folder: RunFolder) -> bool:
    """Whether the path leads to the run's own folder: it is no link, or a link to it outside any home."""
    if not folder.path.is_symlink():
        return True
    at = _plain(folder.path)
    for _ in range(_MOST_LINKS):
        if not at.is_symlink():
            return _names(read_json(at / "plan.json")) == folder.path.name
        at = _plain(at.parent / os.readlink(at))  # noqa: PTH115 - the next link only
        if home_of(at) is not None:
            return False
    return False


def must_be_own(number: int, folder: RunFolder, key: str | None = None) -> None:
    """Raises Unavailable for a link to anything but the folder of run `number`; not where it leads nowhere. `key`: of
    the run's plan, if known."""
    is_others = key is not None and folder.path.is_symlink() and read_table(folder.plan).get("key") != key
    if (is_others or not is_own(folder)) and folder.path.exists():
        raise Unavailable(
            f"the folder of run {number} is a link to {os.path.realpath(folder.path)}, which is not that run's folder",
            f"put its folder back, or remove the run: `kgops delete {number}` leaves those files as they are",
        )


def put_right(folder: RunFolder) -> None:
    """Sets aside links to the files of somebody else that a worker put in the place of its run's folder, or of its
    folders of attempts. The files themselves stay; a link to a disk that is away stays, too."""
    if not is_own(folder) and folder.path.is_dir():
        folder.path.rename(folder.path.with_name(f".{folder.path.name}.link-{time.time_ns()}"))
    elif not set_link_aside(folder.attempts):
        for number in range(1, folder.last_attempt() + 1):
            set_link_aside(folder.attempt(number).path)


def _plain(path: Path) -> Path:
    """Without links above it."""
    return Path(os.path.realpath(path.parent)) / path.name


def _names(plan: object) -> str | None:
    """The name of the run's folder, by its plan."""
    if not isinstance(plan, dict):
        return None
    number, workload, label = (plan.get(name) for name in ("number", "workload", "label"))
    if not isinstance(number, int) or not isinstance(workload, str) or not isinstance(label, str):
        return None
    return folder_name(number, workload, label)
