"""What the kernel says of processes on GPUs: user, command, age and CPU share.

Read from /proc by hand: with psutil one sample of 60 processes takes ten times as long.
"""

from __future__ import annotations

import os
import pwd
import time
import weakref
from collections.abc import Collection
from typing import NamedTuple

from kgops.jobs.text import from_bytes

_STATE, _USER_TICKS, _SYSTEM_TICKS, _START_TICKS = 0, 11, 12, 19  # fields of /proc/PID/stat behind the name
_LONGEST_COMMAND = 4096
_MOST_KEPT_OPEN = 200
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class ProcessDetails(NamedTuple):  # made anew for every process every second
    """A living process. `start_ticks` and the PID identify it: PIDs are reused."""

    start_ticks: int
    started_at: float
    user: str
    is_own: bool  # of the user who asks
    command: str | None  # None: a process of the kernel
    cpu_percent: float | None = None  # of one CPU since the reading before; None at the first


class ProcessReader:
    """Reads processes again and again; what never changes of a process is read once."""

    def __init__(self) -> None:
        self._booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._known: dict[int, ProcessDetails] = {}
        self._cpu: dict[int, tuple[float, int]] = {}  # when, and ticks so far
        self._users: dict[int, str] = {}
        self._files: dict[int, int] = {}  # of /proc/PID/stat, kept open: opening costs more than reading
        weakref.finalize(self, _close, self._files)

    def read(self, pids: Collection[int]) -> dict[int, ProcessDetails]:
        """Details by PID, without processes that are gone or hidden from this user."""
        found: dict[int, ProcessDetails] = {}
        cpu: dict[int, tuple[float, int]] = {}
        for pid in pids:
            fields = self._stat(pid)
            if fields is None:
                continue
            now, ticks = time.monotonic(), int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
            known, start_ticks = self._known.get(pid), int(fields[_START_TICKS])
            if known is None or known.start_ticks != start_ticks:
                known = self._meet(pid, start_ticks)
                self._cpu.pop(pid, None)
            if known is None:
                continue
            found[pid] = known = _with_cpu(known, self._cpu.get(pid), now, ticks)
            cpu[pid] = now, ticks
        self._known, self._cpu = found, cpu
        for pid in self._files.keys() - found.keys():
            os.close(self._files.pop(pid))
        return found

    def _stat(self, pid: int) -> list[bytes] | None:
        raw = self._read_kept(pid) or self._read_anew(pid)
        if raw is None:
            return None
        fields = raw[raw.rindex(b")") + 2 :].split(b" ", _START_TICKS + 1)
        return None if fields[_STATE] in (b"Z", b"X") else fields

    def _read_kept(self, pid: int) -> bytes | None:
        """Of the process that had the PID when the file was opened: once that has ended, nothing."""
        fd = self._files.get(pid)
        if fd is None:
            return None
        try:
            return os.pread(fd, 1024, 0)
        except OSError:
            os.close(self._files.pop(pid))
            return None

    def _read_anew(self, pid: int) -> bytes | None:
        try:
            fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            raw = os.read(fd, 1024)
        except OSError:  # it ended meanwhile
            os.close(fd)
            return None
        if len(self._files) < _MOST_KEPT_OPEN:
            self._files[pid] = fd
        else:
            os.close(fd)
        return raw

    def _meet(self, pid: int, start_ticks: int) -> ProcessDetails | None:
        try:
            uid = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
            with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
                words = file.read(_LONGEST_COMMAND).split(b"\0")
        except OSError:
            return None
        started_at = self._booted_at + start_ticks * _TICK_S
        return ProcessDetails(start_ticks, started_at, self._user(uid), uid == os.getuid(), _command(words))

    def _user(self, uid: int) -> str:
        if uid not in self._users:
            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:  # of another machine, as with files from a container
                self._users[uid] = str(uid)
        return self._users[uid]


def _close(files: dict[int, int]) -> None:
    for fd in files.values():
        os.close(fd)
    files.clear()


def _with_cpu(
    known: ProcessDetails, before: tuple[float, int] | None, now: float, ticks: int
) -> ProcessDetails:
    if before is None or now <= before[0]:
        return known
    percent = 100 * (ticks - before[1]) * _TICK_S / (now - before[0])
    return ProcessDetails(
        known.start_ticks, known.started_at, known.user, known.is_own, known.command, percent
    )


def _command(words: list[bytes]) -> str | None:
    """The command line with the program's name alone of its path, and without secrets."""
    from kgops.jobs.secrets import (
        masked_arguments,  # its patterns take milliseconds, and a screen opens without them
    )

    shown = masked_arguments([text for word in words if (text := from_bytes(word))])
    return " ".join([os.path.basename(shown[0]), *shown[1:]]) if shown else None  # noqa: PTH119
