"""Files of explanations: JSON, CSV with a row for each fact, and CSV with a row for each triple of a path."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kgops.jobs.files import draft_of


@dataclass(frozen=True, slots=True)
class Named:
    """A triple by the graph's labels, and by the names people read."""

    head: str
    head_name: str
    relation: str
    relation_name: str
    tail: str
    tail_name: str


@dataclass(frozen=True, slots=True)
class Fact:
    """`effect`: first-order change of the lead over rivals when only this fact is removed: a ranking, not logits."""

    triple: Named
    effect: float
    pair: str


@dataclass(frozen=True, slots=True)
class NamedPath:
    """Triples from head to tail, each with its own effect; `effect` is that of the weakest."""

    effect: float
    triples: Sequence[Fact]


@dataclass(frozen=True, slots=True)
class Explained:
    """One prediction. After: the mean rank of models trained without the facts; None: not verified.

    `smallest`: whether it was lost without these facts, and not without fewer of them; None: not asked. `others`: the
    heads (or tails) that a sufficient set is carried over to, `carried` for how many the answer then ranks first.
    """

    prediction: int
    triple: Named
    asked: str = "tail"  # or head: the end that the model was asked for
    known: str | None = None
    trouble: str | None = None
    candidate_facts: int = 0
    rank_before: float | None = None
    rank_after: float | None = None
    score_before: float | None = None
    margin_before: float | None = None
    lost: bool | None = None
    seconds: float | None = None
    facts: Sequence[Fact] = field(default=())
    paths: Sequence[NamedPath] = field(default=())
    retrained: Mapping[str, float] | None = None  # mean ranks, by the keys of `verify.KINDS`
    smallest: bool | None = None
    others: Sequence[str] | None = None
    carried: Mapping[str, float] | None = None  # by the same keys


_NUMBERS = ("rank_before", "rank_after", "score_before", "margin_before")
_TRIPLE = ("head", "head_name", "relation", "relation_name", "tail", "tail_name")
_COLUMNS = (
    *("prediction", *_TRIPLE, "asked", "known", "trouble", "candidate_facts", *_NUMBERS),
    *("retrained_all", "lost", "smallest"),
    *("others", "carried", "carried_random", "seconds", "fact"),
    *(f"fact_{name}" for name in _TRIPLE),
    *("effect", "pair"),
)
_PATH_COLUMNS = ("prediction", "path", "path_effect", "step", *_TRIPLE, "effect")


def pair_of(fact: tuple[int, int, int], prediction: tuple[int, int, int]) -> str:
    """`parallel` or `inverse` where a fact is about the same two entities: easy to find, and said apart."""
    if (fact[0], fact[2]) == (prediction[0], prediction[2]):
        return "parallel"
    return "inverse" if (fact[2], fact[0]) == (prediction[0], prediction[2]) else ""


def write_json(path: Path, about: Mapping[str, Any], explained: Sequence[Explained]) -> None:
    predictions = []
    for one in explained:
        table = asdict(one)
        facts = [{**fact.pop("triple"), **fact} for fact in table.pop("facts")]
        paths = [
            {
                "effect": path["effect"],
                "triples": [{**step["triple"], "effect": step["effect"]} for step in path["triples"]],
            }
            for path in table.pop("paths")
        ]
        own = {"prediction": table.pop("prediction"), **table.pop("triple"), **table}
        predictions.append({**own, "facts": facts, "paths": paths})
    text = json.dumps({**about, "predictions": predictions}, ensure_ascii=False, allow_nan=False, indent=1)
    with draft_of(path) as draft:
        draft.write_text(text + "\n", encoding="utf-8")


def write_csv(path: Path, explained: Sequence[Explained]) -> None:
    _write_table(path, _COLUMNS, (row for one in explained for row in _rows(one)))


def write_paths(path: Path, explained: Sequence[Explained]) -> None:
    rows = (
        [one.prediction, number, found.effect, step, *asdict(fact.triple).values(), fact.effect]
        for one in explained
        for number, found in enumerate(one.paths, 1)
        for step, fact in enumerate(found.triples, 1)
    )
    _write_table(path, _PATH_COLUMNS, rows)


def _rows(one: Explained) -> Iterator[list[Any]]:
    own = [
        one.prediction,
        *asdict(one.triple).values(),
        one.asked,
        one.known,
        one.trouble,
        one.candidate_facts,
    ]
    carried = one.carried or {}
    own += [*(getattr(one, name) for name in _NUMBERS), (one.retrained or {}).get("retrained_all")]
    own += [one.lost, one.smallest]
    own += [None if one.others is None else len(one.others)]
    own += [carried.get("retrained"), carried.get("retrained_random"), one.seconds]
    for number, fact in enumerate(one.facts, 1):
        yield [*own, number, *asdict(fact.triple).values(), fact.effect, fact.pair]
    if not one.facts:
        yield [*own, *[None] * 9]


def _write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with draft_of(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(columns)
        lines.writerows(map(_text, row) for row in rows)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.9g}" if isinstance(value, float) else str(value)
