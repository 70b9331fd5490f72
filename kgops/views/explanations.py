"""The first explanations of an explain run, from its CSV file."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

from kgops.jobs.explain import EXPLANATIONS
from kgops.jobs.files import ABSENT, open_regular
from kgops.jobs.numbers import finite_number

__all__ = ["ExplainedPrediction", "ExplainingFact", "read_explanations"]

_MOST_BYTES = 4 << 20  # of the file


@dataclass(frozen=True, slots=True)
class ExplainingFact:
    triple: tuple[str, str, str]
    effect: float | None
    pair: str


@dataclass(frozen=True, slots=True)
class ExplainedPrediction:
    """Names as people read them; None for a number that is not there."""

    number: str
    triple: tuple[str, str, str]
    known: str
    trouble: str
    lost: bool
    numbers: dict[str, float | None]
    facts: tuple[ExplainingFact, ...]


def read_explanations(results: Path, *, predictions: int) -> list[ExplainedPrediction]:
    """At most so many; none where there is no such file."""
    try:
        with os.fdopen(open_regular(results / f"{EXPLANATIONS}.csv"), encoding="utf-8", newline="") as file:
            lines = file.read(_MOST_BYTES).split("\n")[:-1]  # the last one may be cut
    except (*ABSENT, UnicodeDecodeError):
        return []
    groups = groupby(csv.DictReader(lines), lambda row: row.get("prediction") or "")
    return [_explained(number, list(rows)) for number, rows in islice(groups, predictions)]


def _explained(number: str, rows: list[dict[str, str | None]]) -> ExplainedPrediction:
    first = rows[0]
    names = [f"{name}_{when}" for name in ("rank", "score", "margin") for when in ("before", "after")]
    facts = (
        ExplainingFact(_triple(row, "fact_"), _number(row.get("effect")), row.get("pair") or "")
        for row in rows
    )
    return ExplainedPrediction(
        number,
        _triple(first, ""),
        first.get("known") or "",
        first.get("trouble") or "",
        first.get("lost") == "yes",
        {name: _number(first.get(name)) for name in (*names, "head_facts", "seconds")},
        tuple(facts) if first.get("fact") else (),
    )


def _triple(row: dict[str, str | None], before: str) -> tuple[str, str, str]:
    head, relation, tail = (row.get(f"{before}{part}_name") or "" for part in ("head", "relation", "tail"))
    return head, relation, tail


def _number(text: str | None) -> float | None:
    try:
        return finite_number(text) if text else None
    except ValueError:
        return None
