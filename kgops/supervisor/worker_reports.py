"""What a worker writes: events of its event file, and progress and metrics in its log."""

from __future__ import annotations

import os
import re
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgops.jobs.data_digests import text_table
from kgops.jobs.events import DATA, is_metric
from kgops.jobs.files import ABSENT, NotAFile, open_regular
from kgops.jobs.numbers import number_in_cell
from storage import reports
from storage.database import Connection
from storage.influences import Influence, TestTriple

CHUNK = 1 << 20  # also the longest line kept


def data_digests(conn: Connection, run: int) -> dict[str, str]:
    """Of the data that the run's newest attempt read; empty where no worker reported any."""
    reported = reports.events(conn, run, kinds=(DATA,))
    return text_table(reported[-1].body) if reported else {}


def read_lines(path: Path, offset: int, *, final: bool) -> tuple[list[bytes | None], int]:
    """The next complete lines behind `offset`, about a chunk of them, and the offset behind those.

    None replaces part of a line too long to keep. With `final`, for a finished file, an unfinished last line
    counts. A carriage return ends a line too: progress bars write nothing else for hours. An unchanged offset:
    nothing new yet, or no such file (`trouble` says what is there instead).
    """
    try:
        data, before = _read(path, offset)
    except ABSENT:
        return [], offset
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    if end == 0:
        if len(data) == CHUNK:
            return [None], offset + CHUNK
        if not (final and data):
            return [], offset
        end = len(data)
        lines: list[bytes | None] = [data]
    else:
        lines = list(data[:end].replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1])
        if before == b"\r" and data.startswith(b"\n"):
            del lines[0]  # second half of a split line end
    if before not in b"\r\n":
        lines[0] = None  # the rest of a line whose beginning was too long to keep
    return lines, offset + end


def trouble(path: Path) -> str | None:
    """Why the path cannot be read as a file; None if it is a file or missing."""
    try:
        _read(path, 0)
    except NotAFile as error:
        return error.strerror
    except ABSENT:
        return None
    return None


def last_bytes(path: Path, count: int, *, since: int = 0) -> bytes:
    """At most `count` bytes from the end, none before `since`; empty if unreadable."""
    try:
        fd = open_regular(path)
        try:
            size = os.fstat(fd).st_size
            return os.pread(fd, count, max(since, size - count))
        finally:
            os.close(fd)
    except ABSENT:
        return b""


def _read(path: Path, offset: int) -> tuple[bytes, bytes]:
    """A chunk from `offset` on, and the byte before it."""
    fd = open_regular(path)
    try:
        return os.pread(fd, CHUNK, offset), os.pread(fd, 1, offset - 1) if offset else b"\n"
    finally:
        os.close(fd)


_MAX_INFLUENCES = 1000  # influences of one test triple; the run's files have the rest


def test_triple_from(fields: dict[str, Any]) -> TestTriple | None:
    test, triple = _int_or_none(fields["test"]), fields["triple"]
    if test is None or not _are_texts(triple, 3):
        return None
    head, relation, tail = triple
    found = [_influence(test, row) for row in (fields.get("influences") or [])[:_MAX_INFLUENCES]]
    if None in found:
        return None
    names = (fields.get("names") or {}).items()
    return TestTriple(
        test,
        head,
        relation,
        tail,
        candidates=_int_or_none(fields.get("candidates")),
        trouble=fields.get("trouble"),
        found=tuple(one for one in found if one is not None),
        names={label: name for label, name in names if isinstance(name, str)},
    )


def _influence(test: int, row: Any) -> Influence | None:
    if not isinstance(row, list) or len(row) != 5 or not _are_texts(row[1:4], 3):
        return None
    rank, score = row[0], row[4]
    if not is_metric(rank) or not is_metric(score) or not _int_or_none(abs(rank)):
        return None
    return Influence(test, int(rank), row[1], row[2], row[3], float(score))


def _int_or_none(value: float | None) -> int | None:
    """None also if too large for a column."""
    return None if value is None or not 0 <= value < 1 << 53 else int(value)


def _are_texts(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(isinstance(one, str) for one in value)


_BLOCK = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


def keep_newest(log: Path, mib: float, read: int | None = None) -> int:
    """Frees the old part's disk blocks if the log takes more than `mib`; offsets stay. `read`: what lies behind is
    still to be searched for metrics.

    Returns the bytes freed: 0 if nothing had to be done or the file system cannot punch holes.
    """
    try:
        status = log.lstat()
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        return 0
    limit = int(mib * (1 << 20))
    # Keeps half, so that this runs once per half, not at every check.
    if status.st_blocks * 512 <= limit:
        return 0
    old = status.st_size - limit // 2
    upto = (old if read is None else min(old, read)) // _BLOCK * _BLOCK
    return upto if upto > 0 and _punch(log, upto) else 0


def first_kept(fd: int) -> int:
    """Offset of the first byte still there; the file size if there is none."""
    try:
        return os.lseek(fd, 0, os.SEEK_DATA)
    except OSError:  # ENXIO: nothing but a hole
        return os.fstat(fd).st_size


def _punch(log: Path, length: int) -> bool:
    import ctypes  # here: 1.5 MB that most supervisors never need

    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    fd = open_regular(log, os.O_WRONLY)
    try:
        done: bool = fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, 0, length) == 0
        return done
    finally:
        os.close(fd)


_BEHIND = ",;)]}"  # a number, as in `loss=0.5, acc=0.9` where the pattern is \S+
_MAX_LINE = 2000  # characters of a line that are searched: a pattern may be slow on long lines
CPU_LIMIT_S = 2.0  # of CPU time per MiB of log; ordinary patterns take some 50 ms


class TooSlow(Exception):
    """The patterns used up their CPU time limit."""


@contextmanager
def cpu_limit(seconds: float = CPU_LIMIT_S) -> Iterator[None]:
    """Raises TooSlow in the body after that much CPU time. Main thread only, which alone gets signals."""

    def stop(number: int, frame: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.pthread_sigmask(
        signal.SIG_UNBLOCK, {signal.SIGVTALRM}
    )  # a mask is inherited from the parent process
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def can_be_bounded() -> bool:
    """Whether this thread can enforce a CPU time limit."""
    import threading  # here: supervisors do not need it

    return threading.current_thread() is threading.main_thread()


@dataclass(frozen=True, slots=True)
class Progress:
    done: float
    total: float | None


class LogPatterns:
    """`progress` finds `done` and `total` by name, or takes the first and second group.
    `metric` names metrics by its groups (`(?P<loss>…)`), or finds groups `name` and `value`;
    a group `step` says where on the curve."""

    def __init__(self, progress: str | None, metric: str | None) -> None:
        self._progress = re.compile(progress) if progress else None
        self._metric = re.compile(metric) if metric else None
        self.no_number: str | None = None  # what the pattern for metrics found first that is none

    def __bool__(self) -> bool:
        return bool(self.asked)

    @property
    def asked(self) -> list[str]:
        """Their flags."""
        patterns = {"--progress-regex": self._progress, "--metric-regex": self._metric}
        return [flag for flag, pattern in patterns.items() if pattern is not None]

    def progress(self, line: str) -> Progress | None:
        match = self._progress.search(line[:_MAX_LINE]) if self._progress else None
        if match is None:
            return None
        named = match.groupdict()
        groups = match.groups()
        done = number_in_cell(named.get("done") if "done" in named else groups[0] if groups else None)
        total = number_in_cell(
            named.get("total") if "total" in named else groups[1] if len(groups) > 1 else None
        )
        return None if done is None else Progress(done, total)

    def metrics(self, line: str) -> list[tuple[str, float | None, float | None]]:
        """(name, value, step) of every metric on the line; value None for NaN and infinity, as a diverged run prints
        them; step None if the line has none."""
        if self._metric is None:
            return []
        metrics: list[tuple[str, float | None, float | None]] = []
        for match in self._metric.finditer(line[:_MAX_LINE]):
            named = match.groupdict()
            step = number_in_cell(named.pop("step", None))
            if "name" in named and "value" in named:
                named = {str(named["name"]): named["value"]}
            elif not named:
                named = {"metric": match.group(1) if match.re.groups else match.group(0)}
            for name, text in named.items():
                value = (text or "").rstrip(_BEHIND)
                if _is_number(value):
                    metrics.append((name, number_in_cell(value), step))
                elif value:
                    self.no_number = self.no_number or value
        return metrics


def _is_number(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True
