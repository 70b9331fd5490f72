"""The state of one host and one run of it, as its feed tells them. Their rows belong to the host named here."""

from __future__ import annotations

import json
import os
import threading
from base64 import b64decode
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar

from kgops import __version__
from kgops.errors import KgopsError
from kgops.hosts.protocol import PROTOCOL, TABLES, Misfit, Picture, Row, accepted, from_json
from kgops.hosts.run_picture import MOST_BUCKETS, MOST_CURVES
from kgops.jobs.text import one_line
from kgops.present.run_detail import Curve, RunDetail
from storage.runs import STATES
from storage.series import Bucket

if TYPE_CHECKING:
    from kgops.present.run_detail import RunDetail

T = TypeVar("T")
Reach = Literal["connecting", "live", "silent", "unreachable"]


class Unusable(KgopsError):
    """What came is not a feed that this kgops understands."""


@dataclass(frozen=True, slots=True)
class HostState:
    """One host as of its last line. Rows are shared with later states where they are equal, and never changed."""

    name: str
    address: str
    reach: Reach = "connecting"
    problem: str | None = None  # why it does not answer
    hint: str | None = None
    version: str | None = None  # of kgops there
    heard_at: float | None = None  # of the last line, by this machine's clock
    pause_s: float | None = None  # from its loss to the next try
    tables: Picture = field(default_factory=dict)  # empty until a picture came
    detail: RunDetail | None = None  # where one run is watched

    @property
    def has_picture(self) -> bool:
        return bool(self.tables)

    @property
    def other_version(self) -> str | None:
        """`kgops 0.9.0 there, 1.0.0 here`; None where both are of one version, or it is unknown."""
        if self.version in (None, __version__):
            return None
        return f"kgops {self.version} there, {__version__} here"

    def rows(self, table: str) -> dict[str, Row]:
        return self.tables.get(table, {})


class Mirror:
    """Reads lines of one connection. What is unknown in them is ignored; what is no feed raises Unusable."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.tables: Picture = {}
        self.detail: RunDetail | None = None
        self._greeted = False

    def read(self, line: bytes) -> bool:
        """Takes one line; True if something changed."""
        message = message_of(line)
        kind = message.get("type")
        if not self._greeted:
            self._greet(message)
            return True
        if kind == "picture":
            return self._apply({name: {} for name in TABLES}, message, None)
        if kind == "change" and self.tables:
            return self._apply(self.tables, message.get("set"), message.get("drop"))
        return False  # `alive`, and what a newer kgops may say besides

    def _greet(self, message: dict[str, Any]) -> None:
        number, version = message.get("protocol"), message.get("kgops")
        if message.get("type") != "hello" or not _is_number(number):
            raise Unusable("what answers there is not kgops", "`kgops hosts check` runs it again")
        self.version = one_line(version, 40) if isinstance(version, str) else None
        if number != PROTOCOL:
            older = "the one there" if number < PROTOCOL else "this one"
            raise Unusable(
                f"kgops {self.version or 'n/a'} there speaks protocol {str(number)[:12]}, this one {PROTOCOL}:"
                f" {older} is older",
                f"install the newer kgops {'there' if number < PROTOCOL else 'here'}, then `kgops hosts check`",
            )
        self._greeted = True

    def _apply(self, before: Picture, changes: Any, dropped: Any) -> bool:
        """Tables are replaced, not changed: states that were handed out keep theirs."""
        fresh = dict(before)
        for name, known in TABLES.items():
            rows = _member(changes, name, dict)
            gone = {key for key in _member(dropped, name, list) if isinstance(key, str)}
            if not rows and not gone:
                continue
            table = {key: row for key, row in before[name].items() if key not in gone}
            for key, fields in rows.items():
                row = accepted(name, key, fields)
                if row is not None and (key in table or len(table) < known.most_rows):
                    table[key] = {**table.get(key, {}), **row}
            fresh[name] = table
        changed = fresh != self.tables
        self.tables = fresh
        return changed


def _member(message: Any, name: str, kind: type[T]) -> T:
    """That member of the message; an empty one where there is none of this type."""
    member = message.get(name) if isinstance(message, dict) else None
    return member if isinstance(member, kind) else kind()


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def message_of(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):  # of bad UTF-8, too
        message = None
    if not isinstance(message, dict):
        start = one_line(line[:60].decode("utf-8", "replace"))
        raise Unusable(f"what answers there is not kgops: {start!r}", "`kgops hosts check` runs it again")
    return message


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
