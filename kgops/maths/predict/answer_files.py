"""Answers of a run as columns, and their files: CSV, JSON, Parquet, and the triples that a TracIn run takes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from kgops.errors import Usage
from kgops.jobs.files import draft_of, import_pyarrow
from kgops.maths.predict.known import NEW
from kgops.maths.predict.questions import NamedVocabulary
from kgops.maths.predict.ranking import Answers
from kgops.maths.train.evaluate import split


@dataclass(frozen=True, slots=True)
class Answer:
    """One row: a triple, whose end in `asked` was predicted (`pair`: both); labels, and names people read."""

    question: int
    asked: str
    rank: float
    head: str
    head_name: str
    relation: str
    relation_name: str
    tail: str
    tail_name: str
    score: float
    probability: float | None
    known: str
    marked: str = ""


_COLUMNS = tuple(field.name for field in fields(Answer))
_IN_JSON = ("rank", "score", "probability", "known", "marked")
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=1)
_ROW_GROUP = 1 << 14  # rows of a Parquet file that are made together


def must_have_parquet() -> Any:
    """Imports pyarrow before the work starts, or says how to install it."""
    return import_pyarrow("`pip install 'kgops[parquet]'`, or name a .csv or .json file.", Usage)


def write_csv(path: Path, answers: Iterable[Answer]) -> None:
    with draft_of(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(_COLUMNS)
        lines.writerows(_row(answer) for answer in answers)


def write_json(
    path: Path,
    about: Mapping[str, Any],
    questions: Sequence[Mapping[str, Any]],
    answers_to: Callable[[int], Iterable[Answer]],
) -> None:
    """`questions`, each with the answers to its `question` number. One answer is in memory at a time: all of them as
    objects would take many times the file."""
    shown = (_members(asked, "answers", _objects(answers_to(asked["question"]))) for asked in questions)
    with draft_of(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.writelines(_members(about, "questions", (_indented(parts) for parts in shown)))
        file.write("\n")


def _members(table: Mapping[str, Any], name: str, items: Iterable[Iterable[str]]) -> Iterator[str]:
    """The text of `table` with a list of already indented items as its last member, in parts, as json writes it."""
    empty, place = _ENCODER.encode({**table, name: []}), -1
    for place, item in enumerate(items):
        yield ",\n  " if place else empty.removesuffix("]\n}") + "\n  "
        yield from item
    yield "\n ]\n}" if place >= 0 else empty


def _objects(answers: Iterable[Answer]) -> Iterator[Iterator[str]]:
    return (_indented([_ENCODER.encode(_as_object(answer))]) for answer in answers)


def _indented(parts: Iterable[str]) -> Iterator[str]:
    return (part.replace("\n", "\n  ") for part in parts)  # JSON texts contain no line breaks


def write_parquet(path: Path, answers: Iterable[Answer]) -> None:
    pa = must_have_parquet()
    types = {int: pa.int64(), float: pa.float64(), str: pa.string()}
    kinds = {"question": int, "rank": float, "score": float, "probability": float}
    schema = pa.schema([(name, types[kinds.get(name, str)]) for name in _COLUMNS])
    with draft_of(path) as draft, pa.parquet.ParquetWriter(draft, schema) as file:
        rows = iter(answers)
        while some := list(islice(rows, _ROW_GROUP)):
            columns = {name: [getattr(answer, name) for answer in some] for name in _COLUMNS}
            file.write_table(pa.table(columns, schema=schema))


def write_triples(path: Path, triples: Iterable[Sequence[str]]) -> None:
    """Head, relation, tail on each line, and what marks it."""
    with draft_of(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.writelines("\t".join(triple) + "\n" for triple in triples)


def _row(answer: Answer) -> list[Any]:
    return [_text(getattr(answer, name)) for name in _COLUMNS]


def _text(value: Any) -> Any:
    """A whole rank without a point; a score with nine digits, which bring back every float32."""
    if value is None:
        return ""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.9g}"
    return value


def _as_object(answer: Answer) -> dict[str, Any]:
    if answer.asked == "pair":
        ends = ("head", "tail")
        named = {key: getattr(answer, key) for end in ends for key in (end, f"{end}_name")}
    else:
        named = {
            "entity": getattr(answer, answer.asked),
            "name": getattr(answer, f"{answer.asked}_name"),
        }
    return {"rank": answer.rank, **named, **{key: getattr(answer, key) for key in _IN_JSON[1:]}}


@dataclass(frozen=True)
class Listed:
    """The answers to one question, best first. `triples` as int32: half of what torch's ids take."""

    question: int
    asked: str
    triples: torch.Tensor
    found: Answers
    known: Sequence[str]
    marked: Sequence[str] = ()  # a word for each answer, where there is a file of them


@dataclass(frozen=True)
class Listing:
    """The answers to all questions, in their order."""

    entities: NamedVocabulary
    relations: NamedVocabulary
    listed: Sequence[Listed]

    def __len__(self) -> int:
        return sum(len(one.triples) for one in self.listed)

    def __iter__(self) -> Iterator[Answer]:
        for one in self.listed:
            yield from self.rows(one)

    @cached_property
    def of_question(self) -> Mapping[int, Listed]:
        return {one.question: one for one in self.listed}

    @property
    def new(self) -> int:
        return sum(one.known.count(NEW) for one in self.listed)

    def answers_to(self, question: int) -> Iterator[Answer]:
        one = self.of_question.get(question)
        return iter(()) if one is None else self.rows(one)

    def rows(self, one: Listed) -> Iterator[Answer]:
        entities, relations, found = self.entities, self.relations, one.found
        probabilities = found.probabilities
        columns = zip(
            one.triples.tolist(), found.ranks.tolist(), found.scores.tolist(), one.known, strict=True
        )
        for place, ((h, r, t), rank, score, known) in enumerate(columns):
            yield Answer(
                *(one.question, one.asked, rank),
                *(entities.label(h), entities.name(h), relations.label(r), relations.name(r)),
                *(entities.label(t), entities.name(t), score),
                None if probabilities is None else float(probabilities[place]),
                known,
                one.marked[place] if one.marked else "",
            )

    def best_first(self, *, new_alone: bool = False) -> Iterator[tuple[str, ...]]:
        """Each triple once: first the best answer to each question, then each second best, and so on. A fourth word
        marks predicted heads, which are explained as such."""
        if not self.listed:
            return
        chosen = [
            torch.tensor([not new_alone or known == NEW for known in one.known], dtype=torch.bool)
            for one in self.listed
        ]
        pairs = zip(self.listed, chosen, strict=True)
        triples = torch.cat([_marked(one.triples[rows], one.asked == "head") for one, rows in pairs])
        places = torch.cat([torch.arange(int(rows.sum()), dtype=torch.int32) for rows in chosen])
        for h, marked, t in _in_parts(_distinct(triples[places.argsort(stable=True)])):
            r, is_head = divmod(marked, 2)
            triple = self.entities.label(h), self.relations.label(r), self.entities.label(t)
            yield (*triple, "head") if is_head else triple


def _marked(triples: torch.Tensor, is_head: bool) -> torch.Tensor:
    """With 2r, or 2r + 1 where the head is what was predicted, in the place of relation r."""
    h, r, t = triples.unbind(dim=1)
    return torch.stack([h, 2 * r + is_head, t], dim=1)


def _distinct(triples: torch.Tensor) -> torch.Tensor:
    """The first of equal rows, in their order."""
    if not len(triples):
        return triples
    h, r, t = triples.long().unbind(dim=1)
    keys, order = ((h * (r.max() + 1) + r) * (t.max() + 1) + t).sort(stable=True)
    first = torch.ones(len(keys), dtype=torch.bool)
    first[1:] = keys[1:] != keys[:-1]
    return triples[order[first].sort().values]


def _in_parts(triples: torch.Tensor) -> Iterator[list[int]]:
    for part in split(triples, 1 << 16):
        yield from part.tolist()
