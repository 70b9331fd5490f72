"""The state of one host, as its feed tells it line by line. Its rows belong to the host that this console named."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar

from kgops import __version__
from kgops.errors import KgopsError
from kgops.hosts.protocol import PROTOCOL, TABLES, Picture, Row, accepted
from kgops.jobs.text import one_line

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
