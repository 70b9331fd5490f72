"""The files a TracIn run leaves for people, headed as the group's scripts did.

One test triple after the other, some thousand rows at a time: what a file holds of them is never in memory together.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from kgops.jobs.files import sync_folder
from kgops.tracin.finished_tests import Part
from kgops.tracin.results import Table, as_object, csv_line, encoded
from kgops.tracin.test_triples import TestTriple

__all__ = ["CSV_HEADER", "Add", "Wrote", "csv_file", "json_file", "self_influence_csv", "self_influence_json"]

CSV_HEADER = (
    *("TestHead", "TestHead_label", "TestRel", "TestRel_label", "TestTail", "TestTail_label"),
    *("TrainHead", "TrainHead_label", "TrainRel", "TrainRel_label", "TrainTail", "TrainTail_label"),
    "TracInScore",
)
_AT_ONCE = 1 << 15  # rows
_MOST_AHEAD = 64 << 20  # bytes

Add = Callable[[TestTriple, Part], None]
Wrote = Callable[[int], None]  # hears of rows as they are written


def _nobody(rows: int) -> None:
    pass


@contextmanager
def csv_file(path: Path, table: Table, wrote: Wrote = _nobody) -> Iterator[Add]:
    """Strongest first for each test triple, with every digit of the scores."""
    with _replacing(path) as file:
        file.write(_line(CSV_HEADER))

        def add(test: TestTriple, part: Part) -> None:
            pairs = zip(test.labels, table.names.of(test.labels), strict=True)
            left = encoded(csv_line(*(text for pair in pairs for text in pair)).replace("%", "%%") + ",")
            for rows, scores in _pieces(part.rows, part.scores):
                file.write((left + left.join(table.csv_rows(rows, _digits(scores)))) % tuple(scores.tolist()))
                wrote(len(rows))

        yield add


@contextmanager
def json_file(
    path: Path, table: Table, about: Mapping[str, Any], *, of_many: bool, wrote: Wrote = _nobody
) -> Iterator[Add]:
    """For a program: of each test triple an influence on a line. `of_many` lists the test triples under `results`;
    else `about` and the one that is added are one object. A part without scores has triples alone."""
    with _replacing(path) as file:
        opening, closing = _around("results", about) if of_many else (b"", b"")
        file.write(opening)
        between = b""

        def add(test: TestTriple, part: Part) -> None:
            nonlocal between
            told = {
                "test_triple": as_object(test.labels, table.names),
                "num_training_triples": part.candidates,
                "error": part.trouble,
                **({} if of_many else about),
            }
            before, after = _around("influences", told)
            file.write(between + before)
            _write_objects(file, table, part.rows, part.scores, wrote)
            file.write(after)
            between = b",\n"

        yield add
        file.write(closing + b"\n")


def self_influence_csv(
    path: Path, table: Table, rows: torch.Tensor, scores: torch.Tensor, wrote: Wrote = _nobody
) -> None:
    with _replacing(path) as file:
        file.write(_line(CSV_HEADER[6:]))
        for some, own in _pieces(rows, scores):
            file.write(b"".join(table.csv_rows(some, _digits(own))) % tuple(own.tolist()))
            wrote(len(some))


def self_influence_json(
    path: Path,
    table: Table,
    about: Mapping[str, Any],
    rows: torch.Tensor,
    scores: torch.Tensor,
    wrote: Wrote = _nobody,
) -> None:
    """`about`, the summary among it, and then the training triples, each on a line."""
    before, after = _around("self_influences", about)
    with _replacing(path) as file:
        file.write(before)
        _write_objects(file, table, rows, scores, wrote)
        file.write(after + b"\n")


def _write_objects(
    file: _replacing, table: Table, rows: torch.Tensor, scores: torch.Tensor, wrote: Wrote
) -> None:
    between = b""
    for some, own in _pieces(rows, scores):
        digits, values = _digits(own), own.tolist()
        if not own.isfinite().all():
            named = (digits % one if isfinite(one) else json.dumps(one) for one in values)
            digits, values = "%b", [text.encode() for text in named]
        file.write(between + b",\n".join(table.json_rows(some, digits)) % tuple(values))
        between = b",\n"
        wrote(len(some))


def _digits(scores: torch.Tensor) -> str:
    """That give the same number back, in one width whatever its size: so a plan knows how large a file will be."""
    return "%.16e" if scores.dtype == torch.float64 else "%.8e"


def _pieces(rows: torch.Tensor, scores: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """None of them empty."""
    pieces = zip(torch.split(rows, _AT_ONCE), torch.split(scores, _AT_ONCE), strict=True)
    return ((some, own) for some, own in pieces if len(some))


def _around(name: str, told: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """What stands before and after the elements of the list `name`, the last member of an object."""
    whole = json.dumps({**told, name: []}, indent=1, ensure_ascii=False)
    before, _, after = whole.rpartition("]")
    return encoded(before + "\n"), encoded("\n]" + after)


def _line(fields: tuple[str, ...]) -> bytes:
    return encoded(",".join(fields) + "\n")


class _replacing:
    """A file that stands under its name only when it is whole and on disk."""

    def __init__(self, path: Path) -> None:
        self._path, self._half = path, path.with_name(f".{path.name}.part")
        self._ahead = 0

    def __enter__(self) -> _replacing:
        self._file = self._half.open("wb")
        return self

    def write(self, text: bytes) -> None:
        """Never far ahead of the disk: what progress says is written is there, and a full disk is met early."""
        self._file.write(text)
        self._ahead += len(text)
        if self._ahead >= _MOST_AHEAD:
            self._file.flush()
            os.fdatasync(self._file.fileno())
            self._ahead = 0

    def __exit__(self, kind: object, *rest: object) -> None:
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
        if kind is None:
            self._half.replace(self._path)
            sync_folder(self._path.parent)
        else:
            self._half.unlink(missing_ok=True)
