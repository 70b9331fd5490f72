"""Files of answers: CSV, JSON and Parquet, and the triples that a TracIn run takes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from kgops.errors import Usage
from kgops.jobs.files import sync
from kgops.jobs.parquet import import_pyarrow

__all__ = ["Answer", "must_have_parquet", "write_csv", "write_json", "write_parquet", "write_triples"]


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

    @property
    def triple(self) -> tuple[str, str, str]:
        return self.head, self.relation, self.tail


_COLUMNS = tuple(field.name for field in fields(Answer))
_IN_JSON = ("rank", "score", "probability", "known")


def must_have_parquet() -> Any:
    """Imports pyarrow before the work starts, or says how to install it."""
    return import_pyarrow("`pip install 'kgops[parquet]'`, or name a .csv or .json file.", Usage)


def write_csv(path: Path, answers: Iterable[Answer]) -> None:
    def write(draft: Path) -> None:
        with draft.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(_COLUMNS)
            lines.writerows(_row(answer) for answer in answers)

    _published(path, write)


def write_json(
    path: Path,
    about: Mapping[str, Any],
    questions: Sequence[Mapping[str, Any]],
    answers_of: Mapping[int, Sequence[Answer]],
) -> None:
    """`questions` by their `question` number, each with its answers."""
    body = {
        **about,
        "questions": [
            {**asked, "answers": [_as_object(answer) for answer in answers_of.get(asked["question"], ())]}
            for asked in questions
        ],
    }
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, indent=1)
    _published(path, lambda draft: draft.write_text(text + "\n", encoding="utf-8"))


def write_parquet(path: Path, answers: Sequence[Answer]) -> None:
    pa = must_have_parquet()
    types = {int: pa.int64(), float: pa.float64(), str: pa.string()}
    kinds = {"question": int, "rank": float, "score": float, "probability": float}
    schema = pa.schema([(name, types[kinds.get(name, str)]) for name in _COLUMNS])
    columns = {name: [getattr(answer, name) for answer in answers] for name in _COLUMNS}
    table = pa.table(columns, schema=schema)
    _published(path, lambda draft: pa.parquet.write_table(table, draft))


def write_triples(path: Path, answers: Iterable[Answer]) -> None:
    """Head, relation, tail: first the best answer to each question, then each second best, and so on. A fourth column
    marks those that are predicted heads, which are explained as such."""
    marked = {True: ("head",), False: ()}
    lines = dict.fromkeys((*one.triple, *marked[one.asked == "head"]) for one in _best_first(answers))
    text = "".join("\t".join(line) + "\n" for line in lines)
    _published(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def _best_first(answers: Iterable[Answer]) -> Iterator[Answer]:
    places: dict[int, int] = {}
    placed = []
    for answer in answers:
        place = places[answer.question] = places.get(answer.question, 0) + 1
        placed.append((place, answer.question, answer))
    return (answer for _, _, answer in sorted(placed, key=lambda one: one[:2]))


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
    table = asdict(answer)
    ends = ("head", "tail") if answer.asked == "pair" else (answer.asked,)
    named = {key: table[key] for end in ends for key in (end, f"{end}_name")}
    if answer.asked != "pair":
        named = {"entity": table[answer.asked], "name": table[f"{answer.asked}_name"]}
    return {"rank": table["rank"], **named, **{key: table[key] for key in _IN_JSON[1:]}}


def _published(path: Path, write: Callable[[Path], Any]) -> None:
    """The file gets its name only when it is complete."""
    draft = path.with_name(f".{path.name}.part")
    write(draft)
    draft.replace(path)
    sync(path.parent)
