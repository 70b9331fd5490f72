"""What was started on other hosts from here, so that a start whose answer was lost is found there, and not repeated.

`started.jsonl` in the home has a line for each start, the oldest first. It is written before the host is asked, with a
random token that the run there keeps, and completed by the run's number.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kgops.errors import Unavailable
from kgops.hosts.registry import Host
from kgops.jobs.files import ABSENT, read_regular, write_durably
from kgops.jobs.text import is_timestamp, one_line
from kgops.settings import Home, make_home
from kgops.supervisor import locks

_MOST, _LARGEST, _LONGEST = 1000, 1 << 21, 400
_LOCK_S = 10.0
_IN_FLIGHT = "starting"  # a folder with a locked file for each start that waits for its answer
_TOKEN = re.compile("[0-9a-f]{32}")


class Start(NamedTuple):
    token: str
    host: str
    address: str
    workload: str
    label: str
    job: str  # SHA-256 of what was asked for: the job and its flags, or what is done to which run
    at: float
    run: int | None = None  # the number there; None while no answer came

    @property
    def name(self) -> str:
        """`lab2:17`"""
        return f"{self.host}:{'n/a' if self.run is None else self.run}"


class Wanted(NamedTuple):
    """What a host is asked to start."""

    workload: str
    label: str
    words: Sequence[Any]  # equal words ask for the same


@contextmanager
def starting(home: Home, host: Host, wanted: Wanted) -> Iterator[tuple[Start, float | None]]:
    """The start to ask the host for, and when it was asked for before: a lost one keeps its token."""
    text = json.dumps(wanted.words, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    make_home(home)
    label = one_line(wanted.label, _LONGEST)
    start = Start(os.urandom(16).hex(), host.name, host.address, wanted.workload, label, digest, time.time())
    lost_at = None
    with _changing(home) as starts:
        home.path.joinpath(_IN_FLIGHT).mkdir(mode=0o700, exist_ok=True)
        for known in starts.values():
            # Another command may be asking for it right now: that one is not lost.
            if (
                known._replace(token=start.token, at=start.at) == start
                and (lock := _claim(home, known)) is not None
            ):
                start, lost_at = start._replace(token=known.token), known.at
                break
        else:
            lock = _claim(home, start)
        starts[start.token] = start
    assert lock is not None  # nobody else knows a fresh token
    try:
        yield start, lost_at
    finally:
        (home.path / _IN_FLIGHT / start.token).unlink(missing_ok=True)
        os.close(lock)


def _claim(home: Home, start: Start) -> int | None:
    return locks.take(home.path / _IN_FLIGHT / start.token)


def complete(home: Home, numbers: Mapping[str, int]) -> None:
    """`numbers`: of runs there, by token. A run that is resumed stands in the list once."""
    with _changing(home) as starts:
        known = {(start.host, start.address, start.run) for start in starts.values()}
        for token, number in numbers.items():
            if token not in starts or starts[token].run is not None:
                continue
            start = starts[token]._replace(run=number)
            if (start.host, start.address, number) in known:
                del starts[token]
            else:
                starts[token] = start


def forget(home: Home, start: Start) -> None:
    """Nothing was started. It stays if it was asked for again since."""
    with _changing(home) as starts:
        if starts.get(start.token) == start:
            del starts[start.token]


def newest(home: Home) -> list[Start]:
    return list(reversed(_read(home.started)))


@contextmanager
def _changing(home: Home) -> Iterator[dict[str, Start]]:
    """The starts by token, which one process at a time changes. Unavailable where they cannot be written."""
    try:
        lock = locks.take(home.path / "started.lock", patience_s=_LOCK_S)
        if lock is None:
            raise Unavailable(
                "another command is changing the list of runs started on other hosts", "try again"
            )
        try:
            before = {start.token: start for start in _read(home.started)}
            after = dict(before)
            yield after
            if after != before:
                write_durably(home.started, _as_lines(list(after.values())[-_MOST:]))
        finally:
            os.close(lock)
    except OSError as error:
        raise Unavailable(
            f"the start cannot be recorded in {home.path}: {error.strerror}", "`kgops doctor` checks the home"
        ) from error


def _as_lines(starts: Iterable[Start]) -> bytes:
    return b"".join(json.dumps(start._asdict()).encode("ascii") + b"\n" for start in starts)


def _read(path: Path) -> list[Start]:
    """A line that is none of ours is left out: what it names is on its host all the same."""
    try:
        text = read_regular(path, at_most=_LARGEST)
    except ABSENT:
        return []
    return [start for line in text.splitlines() if (start := _start(line)) is not None]


def _start(line: bytes) -> Start | None:
    try:
        table: Any = json.loads(line)
        start = Start(**table)
    except (ValueError, TypeError, RecursionError):
        return None
    texts = (start.host, start.address, start.workload, start.label, start.job)
    run, at = start.run, start.at
    if not isinstance(start.token, str) or not _TOKEN.fullmatch(start.token):
        return None
    if not all(isinstance(text, str) and len(text) <= _LONGEST for text in texts):
        return None
    is_number = run is None or (isinstance(run, int) and run > 0)
    is_time = isinstance(at, (int, float)) and is_timestamp(at)
    return start if is_number and is_time else None
