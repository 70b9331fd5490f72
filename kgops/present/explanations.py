"""The first explanations of an explain run: its CSV files, and from its JSON file what retraining found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from kgops.jobs.events import is_metric
from kgops.jobs.files import ABSENT, read_regular
from kgops.jobs.numbers import number_in_cell
from kgops.jobs.text import one_line
from kgops.present.influences import Step
from kgops.present.predictions import MOST_BYTES, Row, rows_of
from kgops.workloads.explain.job import EXPLANATIONS, PATHS

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
class ExplainingPath:
    """From the prediction's head to its tail. `effect`: of its weakest triple; `names` of the labels on it."""

    effect: float
    steps: tuple[Step, ...]
    names: Mapping[str, str]

    @property
    def triples(self) -> Iterator[Triple]:
        return (triple_of(step) for step in self.steps)

    @property
    def words(self) -> list[str]:
        return words_of(self.steps, lambda label: self.names.get(label, label))

    def __str__(self) -> str:
        return " ".join(self.words)


def triple_of(step: Step) -> Triple:
    ends = (step.start, step.end) if step.forward else (step.end, step.start)
    return ends[0], step.relation, ends[1]


def words_of(steps: Sequence[Step], name_of: Callable[[str], str]) -> list[str]:
    """The first entity, then a word for each step: `─inhibits→ gene 38`, or `←inhibits─ drug 5`."""
    words = [one_line(name_of(steps[0].start))]
    for step in steps:
        relation, end = one_line(name_of(step.relation)), one_line(name_of(step.end))
        words.append(f"─{relation}→ {end}" if step.forward else f"←{relation}─ {end}")
    return words


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
    paths: tuple[ExplainingPath, ...] = ()  # strongest first

    @property
    def evidence(self) -> list[ExplainingPath]:
        """The paths that support it. The others only lead through its triples."""
        return [path for path in self.paths if path.effect < 0]

    @property
    def is_sufficient(self) -> bool:
        """Its triples were carried over to other heads; otherwise they are those without which it may be lost."""
        return self.numbers["others"] is not None

    @property
    def names(self) -> dict[str, str]:
        """Label → name, of what it mentions."""
        named = ((self.labels, self.triple), *((fact.labels, fact.triple) for fact in self.facts))
        of_paths = {label: name for path in self.paths for label, name in path.names.items()}
        return of_paths | {
            label: name for labels, names in named for label, name in zip(labels, names, strict=True)
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """What retraining found: in a sentence, and the mean ranks of each prediction by its number."""

    sentence: str
    ranks: dict[str, dict[str, float]]


def read_verification(results: Path) -> Verification | None:
    """None without --verify, and where the file is too large to read next to a screen."""
    try:
        content = read_regular(results / f"{EXPLANATIONS}.json", at_most=MOST_BYTES + 1)
        table = json.loads(content) if len(content) <= MOST_BYTES else None
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
    whole = predictions is None
    groups, is_part = _groups(results / f"{EXPLANATIONS}.csv", whole)
    paths = dict(_groups(results / PATHS, whole)[0])
    found = [_explained(number, rows, paths.get(number, [])) for number, rows in groups]
    return found[:predictions], is_part or len(found) > len(found[:predictions])


def _groups(path: Path, whole: bool) -> tuple[list[tuple[str, list[Row]]], bool]:
    """Rows of each prediction, and whether these are only the first of a large file."""
    rows, is_part = rows_of(path, "prediction", whole=whole)
    groups = [(number, list(group)) for number, group in groupby(rows, lambda row: row["prediction"])]
    return groups[:-1] if is_part else groups, is_part  # of a part, the last one may be cut


def _explained(number: str, rows: list[Row], path_rows: list[Row]) -> ExplainedPrediction:
    first = rows[0]
    numbers = {name: number_in_cell(first.get(name)) for name in _NUMBERS}
    candidates = number_in_cell(first.get("candidate_facts"))
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
        tuple(_paths(_triple(first, "")[0], path_rows)),
    )


def _paths(head: str, rows: list[Row]) -> Iterator[ExplainingPath]:
    for _, group in groupby(rows, lambda row: row.get("path")):
        steps, names, at, effect = [], dict[str, str](), head, None
        for row in group:
            triple = first, relation, last = _triple(row, "")
            names |= dict(zip(triple, _triple(row, "", "_name"), strict=True))
            effect = number_in_cell(row.get("path_effect"))
            steps.append(Step(at, relation, last if first == at else first, forward=first == at))
            at = steps[-1].end
        if effect is not None:
            yield ExplainingPath(effect, tuple(steps), names)


def _triple(row: Row, before: str, after: str = "") -> Triple:
    head, relation, tail = (row.get(f"{before}{part}{after}") or "" for part in ("head", "relation", "tail"))
    return head, relation, tail
