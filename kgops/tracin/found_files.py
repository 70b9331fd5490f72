"""The files a TracIn run leaves for people, headed as the group's scripts did.

One test triple after the other: what a file holds of them is never in memory together.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

from kgops.jobs.files import sync_folder
from kgops.tracin.parts import Part
from kgops.tracin.results import Table, as_object, csv_line
from kgops.tracin.tests_to_trace import TestTriple

__all__ = ["CSV_HEADER", "Add", "csv_file", "json_file", "write_self_influence"]

CSV_HEADER = (
    *("TestHead", "TestHead_label", "TestRel", "TestRel_label", "TestTail", "TestTail_label"),
    *("TrainHead", "TrainHead_label", "TrainRel", "TrainRel_label", "TrainTail", "TrainTail_label"),
    "TracInScore",
)

Add = Callable[[TestTriple, Part], None]


@contextmanager
def csv_file(path: Path, table: Table) -> Iterator[Add]:
    """Strongest first for each test triple, with every digit of the scores."""
    with _replacing(path) as file:
        file.write(",".join(CSV_HEADER) + "\n")

        def add(test: TestTriple, part: Part) -> None:
            pairs = zip(test.labels, table.names.of(test.labels), strict=True)
            left = csv_line(*(text for pair in pairs for text in pair))
            digits = "%.17g" if part.scores.dtype == torch.float64 else "%.9g"
            rows = zip(table.csv_rows(part.rows), part.scores.tolist(), strict=True)
            file.writelines(f"{left},{right},{digits % score}\n" for right, score in rows)

        yield add


@contextmanager
def json_file(
    path: Path, table: Table, about: Mapping[str, Any], most: int, *, of_many: bool
) -> Iterator[Add]:
    """For a program: of each test triple its `most` strongest, an influence on a line. `of_many` lists the test
    triples under `results`; else `about` and the one that is added are one object."""
    with _replacing(path) as file:
        opening, closing = _around("results", about) if of_many else ("", "")
        file.write(opening)
        between = ""

        def add(test: TestTriple, part: Part) -> None:
            nonlocal between
            file.write(between)
            file.writelines(_texts(table, test, part, {} if of_many else about, most))
            between = ",\n"

        yield add
        file.write(closing + "\n")


def write_self_influence(path: Path, table: Table, rows: torch.Tensor, scores: torch.Tensor) -> None:
    with _replacing(path) as file:
        file.write(",".join(CSV_HEADER[6:]) + "\n")
        rated = zip(table.csv_rows(rows), scores.tolist(), strict=True)
        file.writelines(f"{text},{score:.9g}\n" for text, score in rated)


def _texts(table: Table, test: TestTriple, part: Part, about: Mapping[str, Any], most: int) -> Iterator[str]:
    told = {
        "test_triple": as_object(test.labels, table.names),
        "num_training_triples": part.candidates,
        "error": part.trouble,
        **about,
    }
    opening, closing = _around("influences", told)
    yield opening
    scores = part.scores[:most].tolist()
    numbers = json.dumps(scores)[1:-1].split(", ") if scores else []
    rows = zip(table.json_rows(part.rows[:most]), numbers, strict=True)
    yield ",\n".join(f'{{{row}, "score": {number}}}' for row, number in rows)
    yield closing


def _around(name: str, told: Mapping[str, Any]) -> tuple[str, str]:
    """What stands before and after the elements of the list `name`, the last member of an object."""
    whole = json.dumps({**told, name: []}, indent=1, ensure_ascii=False)
    before, _, after = whole.rpartition("]")
    return before + "\n", "\n]" + after


class _replacing:
    """A text file that stands under its name only when it is whole and on disk."""

    def __init__(self, path: Path) -> None:
        self._path, self._half = path, path.with_name(f".{path.name}.part")

    def __enter__(self) -> IO[str]:
        self._file = self._half.open("w", encoding="utf-8", errors="surrogateescape", newline="")
        return self._file

    def __exit__(self, kind: object, *rest: object) -> None:
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
        if kind is None:
            self._half.replace(self._path)
            sync_folder(self._path.parent)
        else:
            self._half.unlink(missing_ok=True)
