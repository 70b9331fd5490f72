"""Converts a worker's attribution and measurement events to database rows; drops malformed ones."""

from __future__ import annotations

from typing import Any

from kgops.jobs.events import is_metric
from storage.influences import Influence, TestTriple
from storage.measurements import Measurement

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


def measured_from(
    fields: dict[str, Any], at: float, run: int, command: str, fingerprint: dict[str, Any]
) -> Measurement | None:
    n = _int_or_none(fields["n"])
    if n is None:
        return None
    spread = {name: fields.get(name) for name in ("against", "low", "high")}
    return Measurement(
        name=fields["name"],
        subject=fields["subject"],
        value=float(fields["value"]),
        n=n,
        unit=fields["unit"],
        command=command,
        fingerprint=fingerprint,
        at=at,
        run=run,
        **spread,
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
