"""One run of this machine for a console of another: its page in parts, each sent when it changed, and its log.

    {"type": "part", "name": "run", "value": {…}}
    {"type": "curves", "curves": [{"name": "loss", "n": 300, "last": 0.3, "from": 149, "buckets": [[1, 0.3, …]]}]}
    {"type": "log", "at": 4096, "base64": "…"}
    {"type": "shown", "log_begins": 0, "log_ends": 8192}    what came before belongs together

A curve's buckets replace those from `from` on. A log that grows faster than is sent goes on at its newest lines.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

from kgops.errors import NoSuchRun
from kgops.hosts.protocol import LONGEST_LINE, to_json
from kgops.jobs.files import open_regular
from kgops.present.run_detail import Curve, read_run_detail
from kgops.settings import Home
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.worker_reports import first_kept
from storage.database import Connection, changed_since
from storage.series import Bucket

MOST_BUCKETS, MOST_CURVES = 256, 64
LOG_AT_FIRST, _LOG_EACH = 1 << 18, 3 << 15  # bytes
_TOGETHER = 8  # curves of a line
_MOST_ROWS = 1000  # of a part that is a list: the newest
_LONGEST_PART = LONGEST_LINE // 2

Message = dict[str, Any]


class RunPictureReader:
    """Writes nothing. Reads the record only when somebody wrote to the database."""

    def __init__(self, home: Home, conn: Connection, number: int) -> None:
        self._home, self._conn, self._number = home, conn, number
        self._version: int | None = None
        self._parts: dict[str, Any] = {}
        self._curves: dict[str, list[Bucket]] = {}
        self._log_at: int | None = None
        self._folder: RunFolder | None = None

    def read(self) -> list[Message]:
        """What changed since the last call."""
        changed, self._version = changed_since(self._conn, self._version)
        record = list(self._record()) if changed or self._folder is None else []
        log, ends = self._log()
        return [*record, *log, {"type": "shown", **ends}] if record or log else []

    def _record(self) -> Iterator[Message]:
        detail = read_run_detail(self._home, self._conn, self._number)
        if detail is None:
            raise NoSuchRun(f"there is no run {self._number}", "`kgops runs` lists runs")
        self._folder = RunFolder(detail.path)
        parts = to_json({name: getattr(detail, name) for name in detail.__slots__ if name != "curves"})
        for name, value in parts.items():
            if isinstance(value, list):
                value = value[-_MOST_ROWS:]
            if name not in self._parts or value != self._parts[name]:
                self._parts[name] = value
                yield {"type": "part", "name": name, "value": value if _fits(value) else type(value)()}
        curves = [one for curve in detail.curves[:MOST_CURVES] if (one := self._curve(curve)) is not None]
        for start in range(0, len(curves), _TOGETHER):
            yield {"type": "curves", "curves": curves[start : start + _TOGETHER]}

    def _curve(self, curve: Curve) -> dict[str, Any] | None:
        """What changed of it."""
        now, before = thinned(curve.buckets), self._curves.get(curve.name, [])
        if now == before:
            return None
        self._curves[curve.name] = now
        same = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), len(before))
        same = min(same, len(now))
        buckets = [[b.n, *map(_short, (b.min, b.max, b.mean)), b.first_step, b.last_step] for b in now[same:]]
        head = {"name": curve.name, "n": curve.n, "last": _short(curve.last)}
        return to_json({**head, "from": same, "buckets": buckets})  # type: ignore[no-any-return]

    def _log(self) -> tuple[list[Message], dict[str, int]]:
        """New bytes, and where the log begins and ends."""
        try:
            fd = open_regular((self._folder or RunFolder(self._home.runs / "0")).log)
        except OSError:  # not there yet, or the worker put something else there
            return [], {"log_begins": 0, "log_ends": 0}
        try:
            begins, ends = first_kept(fd), os.fstat(fd).st_size
            at, most = (ends, LOG_AT_FIRST) if self._log_at is None else (self._log_at, _LOG_EACH)
            if self._log_at is None or not 0 <= ends - at <= most:
                at = max(begins, ends - most)
                at += _rest_of_line(fd, at) if at > begins else 0
            raw = os.pread(fd, ends - at, at)
        finally:
            os.close(fd)
        self._log_at = at + len(raw)
        message = {"type": "log", "at": at, "base64": b64encode(raw).decode("ascii")}
        return [message] if raw else [], {"log_begins": begins, "log_ends": ends}


def thinned(buckets: Sequence[Bucket]) -> list[Bucket]:
    """At most MOST_BUCKETS: each of as many as the power of two that it takes, so that only the last one changes."""
    each = 1
    while len(buckets) > each * MOST_BUCKETS:
        each *= 2
    return [_joined(buckets[i : i + each]) for i in range(0, len(buckets), each)]


def _joined(buckets: Sequence[Bucket]) -> Bucket:
    if len(buckets) == 1:
        return buckets[0]
    known = [one for one in buckets if one.n]
    n = sum(one.n for one in known)
    least = [one.min for one in known if one.min is not None]
    most = [one.max for one in known if one.max is not None]
    mean = sum((one.mean or 0.0) * (one.n / n) for one in known) if n else None
    first, last = buckets[0].first_step, buckets[-1].last_step
    return Bucket(n, min(least, default=None), max(most, default=None), mean, first, last)


def _short(value: float | None) -> float | None:
    """Six digits: more than a chart of dots shows."""
    return None if value is None else float(f"{value:.6g}")


def _fits(value: Any) -> bool:
    return not isinstance(value, (dict, list)) or len(str(value)) <= _LONGEST_PART


def _rest_of_line(fd: int, at: int) -> int:
    """Bytes from `at` to the next line; 0 if it is far."""
    return max(os.pread(fd, 1 << 12, at - 1).find(b"\n"), 0)
