"""Files of answers: CSV, JSON and Parquet, and the triples that a TracIn run takes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from kgops.errors import Usage
from kgops.jobs.files import import_pyarrow, sync


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


_COLUMNS = tuple(field.name for field in fields(Answer))
_IN_JSON = ("rank", "score", "probability", "known")
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=1)
_ROW_GROUP = 1 << 14  # rows of a Parquet file that are made together


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
    answers_to: Callable[[int], Iterable[Answer]],
) -> None:
    """`questions`, each with the answers to its `question` number. One answer is in memory at a time: all of them as
    objects would take many times the file."""
    shown = (_members(asked, "answers", _objects(answers_to(asked["question"]))) for asked in questions)

    def write(draft: Path) -> None:
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(_members(about, "questions", (_indented(parts) for parts in shown)))
            file.write("\n")

    _published(path, write)


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
    return (part.replace("\n", "\n  ") for part in parts)  # texts have no line breaks of their own in JSON


def write_parquet(path: Path, answers: Iterable[Answer]) -> None:
    pa = must_have_parquet()
    types = {int: pa.int64(), float: pa.float64(), str: pa.string()}
    kinds = {"question": int, "rank": float, "score": float, "probability": float}
    schema = pa.schema([(name, types[kinds.get(name, str)]) for name in _COLUMNS])

    def write(draft: Path) -> None:
        with pa.parquet.ParquetWriter(draft, schema) as file:
            rows = iter(answers)
            while some := list(islice(rows, _ROW_GROUP)):
                columns = {name: [getattr(answer, name) for answer in some] for name in _COLUMNS}
                file.write_table(pa.table(columns, schema=schema))

    _published(path, write)


def write_triples(path: Path, triples: Iterable[Sequence[str]]) -> None:
    """Head, relation, tail on each line, and what marks it."""

    def write(draft: Path) -> None:
        with draft.open("w", encoding="utf-8") as file:
            file.writelines("\t".join(triple) + "\n" for triple in triples)

    _published(path, write)


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


def _published(path: Path, write: Callable[[Path], Any]) -> None:
    """The file gets its name only when it is complete."""
    draft = path.with_name(f".{path.name}.part")
    write(draft)
    draft.replace(path)
    sync(path.parent)
