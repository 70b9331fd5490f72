"""Digests of the triples and vocabularies that a run read, as text `COUNT:HEX` by name, and what they say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TRIPLES = {"train": "training triples", "valid": "validation triples", "test": "test triples"}
NAMES = {**TRIPLES, "entities": "entities", "relations": "relations"}


def count_of(digest: str) -> str:
    """`1,592`, or n/a where a file from elsewhere holds no digest."""
    count = digest.partition(":")[0]
    return f"{int(count):,}" if count.isascii() and count.isdigit() and len(count) < 19 else "n/a"


def shown(digest: str) -> str:
    """`1,592 (9f3ab2c1)`: equal for equal data."""
    mark = digest.partition(":")[2][:8]
    return f"{count_of(digest)} ({mark})" if mark.isascii() and mark.isalnum() else count_of(digest)


def data_line(digests: Mapping[str, str]) -> str:
    """`1,592 training triples (9f3ab2c1) · …` of all that was read; empty if unknown."""
    parts = [(name, count_of(digests[name]), shown(digests[name])) for name in NAMES if name in digests]
    return " · ".join(f"{count} {NAMES[name]}{text.removeprefix(count)}" for name, count, text in parts)


def have_one_numbering(tables: Sequence[Mapping[str, str]]) -> bool:
    """Whether digests of triples, which are those of their ids, can be compared."""
    return all(len({table.get(name) for table in tables}) == 1 for name in ("entities", "relations"))


def comparable(name: str, digest: str, *, one_numbering: bool) -> str:
    """The digest, or the count alone of triples that are numbered otherwise than those they are compared with."""
    return count_of(digest) if name in TRIPLES and not one_numbering else digest


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs and is known of both, such as `training triples: 1,592 then, 1,061 now`."""
    same = have_one_numbering([before, now])
    return [
        f"{NAMES[name]}: {count_of(before[name])} then, {count_of(now[name])} now"
        for name in NAMES
        if name in before
        and name in now
        and comparable(name, before[name], one_numbering=same)
        != comparable(name, now[name], one_numbering=same)
    ]


def text_table(value: Any) -> dict[str, str]:
    """The digests in a file from elsewhere, which may hold anything."""
    table = value if isinstance(value, Mapping) else {}
    return {name: digest for name in NAMES if isinstance(digest := table.get(name), str)}
