"""The first explanations of an explain run: its CSV file, and from its JSON file what retraining found."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from kgops.jobs.events import is_metric
from kgops.jobs.files import ABSENT, open_regular, read_regular
from kgops.jobs.numbers import number_in_cell
from kgops.workloads.explain.job import EXPLANATIONS

_MOST_BYTES = 4 << 20  # of a file

_NUMBERS = (
    "rank_before",
    "rank_after",
    "retrained_all",
    "score_before",
    "others",
    "carried",
    "carried_random",
)

Triple = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ExplainingFact:
    """`triple` has the names that people read, `labels` the labels of the graph."""

    triple: Triple
    labels: Triple
    effect: float | None
    pair: str


@dataclass(frozen=True, slots=True)
class ExplainedPrediction:
    """`triple` has the names that people read, `labels` the labels of the graph; None for a number that is not
    there."""

    number: str
    triple: Triple
    labels: Triple
    asked: str  # its tail or its head
    known: str
    trouble: str
    lost: bool
    numbers: dict[str, float | None]
    facts: tuple[ExplainingFact, ...]
    smallest: bool | None = None  # see `explanation_files.Explained`

    @property
    def is_sufficient(self) -> bool:
        """Its triples were carried over to other heads; otherwise they are those without which it may be lost."""
        return self.numbers["others"] is not None

    @property
    def names(self) -> dict[str, str]:
        """Label → name, of what it mentions."""
        named = ((self.labels, self.triple), *((fact.labels, fact.triple) for fact in self.facts))
        return {label: name for labels, names in named for label, name in zip(labels, names, strict=True)}


@dataclass(frozen=True, slots=True)
class Verification:
    """What retraining found: in a sentence, and the mean ranks of each prediction by its number."""

    sentence: str
    ranks: dict[str, dict[str, float]]


def read_verification(results: Path) -> Verification | None:
    """None without --verify, and where the file is too large to read next to a screen."""
    try:
        content = read_regular(results / f"{EXPLANATIONS}.json", at_most=_MOST_BYTES + 1)
        table = json.loads(content) if len(content) <= _MOST_BYTES else None
    except (*ABSENT, ValueError, RecursionError):
        return None
    if not isinstance(table, dict) or not isinstance(table.get("verified"), str):
        return None
    listed = table.get("predictions")
    predictions = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return Verification(table["verified"], {str(one.get("prediction")): _ranks(one) for one in predictions})


def _ranks(prediction: dict[str, Any]) -> dict[str, float]:
    ranks = prediction.get("retrained")
    return {name: rank for name, rank in ranks.items() if is_metric(rank)} if isinstance(ranks, dict) else {}


def read_explanations(results: Path, *, predictions: int | None) -> tuple[list[ExplainedPrediction], bool]:
    """At most so many, of the beginning of a large file, and whether it has more; None: all of them."""
    try:
        with os.fdopen(open_regular(results / f"{EXPLANATIONS}.csv"), encoding="utf-8", newline="") as file:
            lines = file.read(-1 if predictions is None else _MOST_BYTES).split("\n")
            is_part = predictions is not None and bool(file.read(1))
    except (*ABSENT, UnicodeDecodeError):
        return [], False
    rows = (row for row in csv.DictReader(lines[:-1]) if (row.get("prediction") or "").isdecimal())
    groups = groupby(rows, lambda row: row["prediction"] or "")
    found = [_explained(number, list(group)) for number, group in groups]
    whole = found[:-1] if is_part else found  # of a part, the last one may be cut
    return whole[:predictions], is_part or len(whole) > len(whole[:predictions])


def _explained(number: str, rows: list[dict[str, str | None]]) -> ExplainedPrediction:
    first = rows[0]
    numbers = {name: number_in_cell(first.get(name)) for name in _NUMBERS}
    candidates = number_in_cell(first.get("candidate_facts") or first.get("head_facts"))  # its name before
    facts = (
        ExplainingFact(
            _triple(row, "fact_", "_name"),
            _triple(row, "fact_"),
            number_in_cell(row.get("effect")),
            row.get("pair") or "",
        )
        for row in rows
    )
    return ExplainedPrediction(
        number,
        _triple(first, "", "_name"),
        _triple(first, ""),
        "head" if first.get("asked") == "head" else "tail",
        first.get("known") or "",
        first.get("trouble") or "",
        first.get("lost") == "yes",
        numbers | {"candidate_facts": candidates},
        tuple(facts) if first.get("fact") else (),
        {"yes": True, "no": False}.get(first.get("smallest") or ""),
    )


def _triple(row: dict[str, str | None], before: str, after: str = "") -> Triple:
    head, relation, tail = (row.get(f"{before}{part}{after}") or "" for part in ("head", "relation", "tail"))
    return head, relation, tail
