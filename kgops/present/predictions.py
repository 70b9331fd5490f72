"""The first answers of a predict run, from its CSV file: a part of it, since there may be millions."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

from kgops.jobs.files import ABSENT, open_regular
from kgops.jobs.numbers import number_in_cell
from kgops.jobs.text import one_line
from kgops.present.formats import UNKNOWN, amount
from kgops.workloads.predict.job import ANSWERS

COLUMNS = ("rank", "score", "probability", "known", "head", "relation", "tail")
NUMBERS = COLUMNS[:3]  # to the right
MOST_BYTES = 4 << 20  # of a file: some 30,000 answers

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class PredictedTriple:
    """Names as people read them, and labels of the graph; None for a number that is not there."""

    rank: float | None
    head: str
    relation: str
    tail: str
    score: float | None
    probability: float | None
    known: str
    labels: tuple[str, str, str]

    @property
    def cells(self) -> tuple[str, ...]:
        """Texts of `COLUMNS`."""
        score = UNKNOWN if self.score is None else f"{self.score:+.4g}"
        names = map(one_line, (self.head, self.relation, self.tail))
        return (amount(self.rank), score, amount(self.probability), self.known, *names)


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """Question `number`; `asked` is head, tail or pair. The best answers first."""

    number: int
    asked: str
    answers: tuple[PredictedTriple, ...]

    @property
    def text(self) -> tuple[str, str, str]:
        """Head, relation, tail, with ? for what was asked."""
        first = self.answers[0]
        head = "?" if self.asked in ("head", "pair") else first.head
        return head, first.relation, "?" if self.asked in ("tail", "pair") else first.tail


def read_answers(results: Path, *, questions: int, answers: int) -> list[AnsweredQuestion]:
    """At most so many questions with so many answers each; none where there is no such file."""
    rows, _ = rows_of(results / f"{ANSWERS}.csv", "question")
    found = []
    for (number, asked), group in islice(
        groupby(rows, lambda row: (row["question"], row["asked"])), questions
    ):
        found.append(AnsweredQuestion(int(number), asked, tuple(map(_triple, islice(group, answers)))))
    return found


def rows_of(path: Path, key: str, *, whole: bool = False) -> tuple[Iterator[Row], bool]:
    """The lines of a CSV file with a number as `key`, and whether these are only the first of a large file."""
    try:
        with os.fdopen(open_regular(path), encoding="utf-8", newline="") as file:
            lines = file.read(-1 if whole else MOST_BYTES).split("\n")
            is_part = not whole and bool(file.read(1))
    except (*ABSENT, UnicodeDecodeError):
        return iter(()), False
    rows = csv.DictReader(lines[:-1])  # the last one may be cut
    texts = ({name: value or "" for name, value in row.items() if name} for row in rows)
    return (row for row in texts if row.get(key, "").isdecimal()), is_part


def _triple(row: Row) -> PredictedTriple:
    head, relation, tail = (row.get(f"{part}_name") or "" for part in ("head", "relation", "tail"))
    numbers = {name: number_in_cell(row.get(name)) for name in ("rank", "score", "probability")}
    return PredictedTriple(
        numbers["rank"],
        head,
        relation,
        tail,
        numbers["score"],
        numbers["probability"],
        " · ".join(filter(None, (row.get("known"), one_line(row.get("marked") or "")))),
        (row.get("head") or "", row.get("relation") or "", row.get("tail") or ""),
    )
