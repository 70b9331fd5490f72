"""One run of another host as its feed tells it: its details, and a copy of the end of its log in a file here."""

from __future__ import annotations

import os
import threading
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

from kgops.hosts.mirror import Mirror, Unusable, message_of
from kgops.hosts.protocol import Misfit, from_json
from kgops.hosts.run_picture import MOST_BUCKETS, MOST_CURVES
from kgops.present.run_detail import Curve, RunDetail
from storage.runs import STATES
from storage.series import Bucket

_MOST_COPIED, _KEPT = 1 << 26, 1 << 24  # bytes of a log
_PROOF = 64  # bytes of the end that are compared
_PARTS = tuple(name for name in RunDetail.__slots__ if name != "curves")
_LATEST = 1 << 60  # offset


class LogCopy:
    """The bytes from `begins` to `ends` of the log there. A gap, or another log, starts the copy afresh."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begins = self.ends = 0
        self.there = (0, 0)  # where the log there begins and ends
        self._lock = threading.Lock()  # the feed's thread adds at the end, another one before the beginning
        path.touch(mode=0o600)

    def add(self, at: int, new: bytes) -> None:
        with self._lock:
            known = self.ends - at  # bytes of `new` that are here
            if not (self.begins <= at and 0 <= known <= len(new) and self._ends_with(new[:known])):
                self._write(at, new)
                return
            with self.path.open("ab") as file:
                file.write(new[known:])
            self.ends += len(new) - known
            if self.ends - self.begins > _MOST_COPIED:
                self._write(self.ends - _KEPT, self._tail(_KEPT))

    def add_before(self, at: int, older: bytes) -> bool:
        """Whether the bytes lie just before the copy's, which may have been started afresh meanwhile."""
        with self._lock:
            fits = at + len(older) == self.begins and self.ends - at <= _MOST_COPIED
            if fits:
                self._write(at, older + self.path.read_bytes())
            return fits

    def _ends_with(self, known: bytes) -> bool:
        proof = known[-_PROOF:]
        return self._tail(len(proof)) == proof

    def _tail(self, size: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(-min(size, self.ends - self.begins), os.SEEK_END)
            return file.read()

    def _write(self, at: int, content: bytes) -> None:
        """As another file: a reader of the one before sees that it was replaced."""
        fresh = self.path.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.replace(self.path)
        self.begins, self.ends = at, at + len(content)


class RunMirror(Mirror):
    """`detail` is of one moment there. What does not fit its fields raises Unusable."""

    def __init__(self, log: LogCopy | None = None) -> None:
        super().__init__()
        self._log = log
        self._parts: dict[str, Any] = {}
        self._curves: dict[str, Curve] = {}

    def read(self, line: bytes) -> bool:
        if not self._greeted:
            return super().read(line)
        message = message_of(line)
        try:
            return self._take(message)
        except (Misfit, KeyError, TypeError, ValueError, OverflowError) as error:
            raise Unusable(
                f"what it says of the run cannot be read: {error!r:.100}",
                "install the same kgops on both machines",
            ) from error

    def _take(self, message: dict[str, Any]) -> bool:
        kind = message.get("type")
        if kind == "part" and message["name"] in _PARTS:
            self._parts[message["name"]] = message["value"]
        elif kind == "curves":
            for one in message["curves"]:
                self._take_curve(one)
        elif kind == "log" and self._log is not None:
            self._log.add(_offset(message["at"]), b64decode(message["base64"], validate=True))
        elif kind == "shown":
            if self._log is not None:
                self._log.there = _offset(message["log_begins"]), _offset(message["log_ends"])
            self._show()
            return True
        return False

    def _take_curve(self, one: dict[str, Any]) -> None:
        name, begins = from_json(str, one["name"]), from_json(int, one["from"])
        known = self._curves.get(name)
        if known is None and len(self._curves) >= MOST_CURVES:
            raise Misfit("too many curves")
        kept = known.buckets[: max(begins, 0)] if known is not None else ()
        new = tuple(from_json(Bucket, dict(zip(_BUCKET, bucket, strict=True))) for bucket in one["buckets"])
        if len(kept) + len(new) > MOST_BUCKETS:
            raise Misfit("a curve of too many points")
        last = from_json(float, one["last"]) if one["last"] is not None else None
        self._curves[name] = Curve(name, from_json(int, one["n"]), last, (*kept, *new))

    def _show(self) -> None:
        curves = tuple(self._curves[name] for name in sorted(self._curves))
        detail = from_json(RunDetail, {**self._parts, "curves": []})
        if detail.run.state not in STATES:
            raise Misfit("a run of no known state")
        self.detail = replace(detail, curves=curves)
        self.tables = {"host": {"host": {}}}


_BUCKET = Bucket.__slots__


def _offset(value: Any) -> int:
    at = from_json(int, value)
    if not 0 <= at <= _LATEST:
        raise Misfit("an offset outside any log")
    return at
