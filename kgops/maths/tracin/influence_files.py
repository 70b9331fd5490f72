"""Files of influences: CSV, JSON and Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from kgops.errors import Usage
from kgops.jobs.files import import_pyarrow, sync
from kgops.maths.tracin.finished_tests import FinishedTest
from kgops.maths.tracin.results import Table, as_object, csv_line, encoded
from kgops.maths.tracin.test_triples import TestTriple

_WITHOUT_PARQUET = "`pip install 'kgops[parquet]'`, or leave out --parquet to get CSV."


@contextmanager
def parquet_file(path: Path, table: Table, wrote: Wrote) -> Iterator[Add]:
    """No file if no test triple could be scored."""
    pa = import_pyarrow(_WITHOUT_PARQUET, Usage)
    draft = path.with_name(f".{path.name}.part")
    groups = _groups(pa, table)
    writer = None

    def add(test: TestTriple, influences: FinishedTest) -> None:
        nonlocal writer
        if test.ids is None:
            return
        group = groups(test, influences)
        writer = writer or pa.parquet.ParquetWriter(draft, group.schema)
        writer.write_table(group)
        wrote(len(influences.rows))

    try:
        yield add
    except BaseException:
        if writer is not None:
            writer.close()
        draft.unlink(missing_ok=True)
        raise
    if writer is not None:
        writer.close()
        draft.replace(path)


def _groups(pa: Any, table: Table) -> Callable[[TestTriple, FinishedTest], Any]:
    """Makes the row group of a test triple; the label dictionaries are built once."""
    graph, names = table.graph, table.names
    entities = pa.array(graph.entities.labels, pa.string())
    relations = pa.array(graph.relations.labels, pa.string())
    entity_names = pa.array([names.nodes.get(label, label) for label in graph.entities.labels], pa.string())
    relation_names = pa.array(
        [names.edges.get(label, label) for label in graph.relations.labels], pa.string()
    )

    def labelled(column_name: str, column: Sequence[int], of: Any, called: Any) -> dict[str, Any]:
        index = pa.array(column, pa.int32())
        return {
            column_name: pa.DictionaryArray.from_arrays(index, of),
            f"{column_name}_label": pa.DictionaryArray.from_arrays(index, called),
        }

    def group(test: TestTriple, influences: FinishedTest) -> Any:
        assert test.ids is not None
        many, rows = len(influences.rows), graph.train[influences.rows]
        columns: dict[str, Any] = {"Test": pa.array([test.number] * many, pa.int32())}
        for side, values in (("Test", [[i] * many for i in test.ids]), ("Train", rows.t().tolist())):
            for name, column in zip(("Head", "Rel", "Tail"), values, strict=True):
                of, called = (relations, relation_names) if name == "Rel" else (entities, entity_names)
                columns |= labelled(f"{side}{name}", column, of, called)
        columns["TracInScore"] = pa.array(influences.scores.numpy())
        return pa.table(columns)

    return group


CSV_HEADER = (
    *("TestHead", "TestHead_label", "TestRel", "TestRel_label", "TestTail", "TestTail_label"),
    *("TrainHead", "TrainHead_label", "TrainRel", "TrainRel_label", "TrainTail", "TrainTail_label"),
    "TracInScore",
)
_AT_ONCE = 1 << 15  # rows
_MOST_AHEAD = 64 << 20  # bytes

Add = Callable[[TestTriple, FinishedTest], None]
Wrote = Callable[[int], None]  # called with the number of rows written


def _ignore(rows: int) -> None:
    pass


@contextmanager
def csv_file(path: Path, table: Table, wrote: Wrote = _ignore) -> Iterator[Add]:
    """Strongest first for each test triple; scores with all digits."""
    with _replacing(path) as file:
        file.write(_line(CSV_HEADER))

        def add(test: TestTriple, influences: FinishedTest) -> None:
            pairs = zip(test.labels, table.names.of(test.labels), strict=True)
            left = encoded(csv_line(*(text for pair in pairs for text in pair)).replace("%", "%%") + ",")
            for rows, scores in _slices(influences.rows, influences.scores):
                file.write((left + left.join(table.csv_rows(rows, _digits(scores)))) % tuple(scores.tolist()))
                wrote(len(rows))

        yield add


@contextmanager
def json_file(
    path: Path, table: Table, about: Mapping[str, Any], *, of_many: bool, wrote: Wrote = _ignore
) -> Iterator[Add]:
    """One influence on a line. `of_many`: a list of test triples under `results`; otherwise `about` and the one test
    triple are one object. Influences without scores are written as triples alone."""
    with _replacing(path) as file:
        opening, closing = _around("results", about) if of_many else (b"", b"")
        file.write(opening)
        between = b""

        def add(test: TestTriple, influences: FinishedTest) -> None:
            nonlocal between
            fields = {
                "test_triple": as_object(test.labels, table.names),
                "num_training_triples": influences.candidates,
                "error": influences.trouble,
                **({} if of_many else about),
            }
            before, after = _around("influences", fields)
            file.write(between + before)
            _write_objects(file, table, influences.rows, influences.scores, wrote)
            file.write(after)
            between = b",\n"

        yield add
        file.write(closing + b"\n")


def self_influence_csv(
    path: Path, table: Table, rows: torch.Tensor, scores: torch.Tensor, wrote: Wrote = _ignore
) -> None:
    with _replacing(path) as file:
        file.write(_line(CSV_HEADER[6:]))
        for some, own in _slices(rows, scores):
            file.write(b"".join(table.csv_rows(some, _digits(own))) % tuple(own.tolist()))
            wrote(len(some))


def self_influence_json(
    path: Path,
    table: Table,
    about: Mapping[str, Any],
    rows: torch.Tensor,
    scores: torch.Tensor,
    wrote: Wrote = _ignore,
) -> None:
    """`about`, with the summary, then one training triple on a line."""
    before, after = _around("self_influences", about)
    with _replacing(path) as file:
        file.write(before)
        _write_objects(file, table, rows, scores, wrote)
        file.write(after + b"\n")


def _write_objects(
    file: _replacing, table: Table, rows: torch.Tensor, scores: torch.Tensor, wrote: Wrote
) -> None:
    between = b""
    for some, own in _slices(rows, scores):
        digits, values = _digits(own), own.tolist()
        if not own.isfinite().all():
            named = (digits % one if isfinite(one) else "null" for one in values)
            digits, values = "%b", [text.encode() for text in named]
        file.write(between + b",\n".join(table.json_rows(some, digits)) % tuple(values))
        between = b",\n"
        wrote(len(some))


def _digits(scores: torch.Tensor) -> str:
    """Format that round-trips, of fixed width, so that a plan can predict the file's size."""
    return "%.16e" if scores.dtype == torch.float64 else "%.8e"


def _slices(rows: torch.Tensor, scores: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Slices of `_AT_ONCE` rows, none empty."""
    slices = zip(torch.split(rows, _AT_ONCE), torch.split(scores, _AT_ONCE), strict=True)
    return ((some, own) for some, own in slices if len(some))


def _around(name: str, fields: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """JSON text before and after the elements of the list `name`, the last member of an object."""
    whole = json.dumps({**fields, name: []}, indent=1, ensure_ascii=False)
    before, _, after = whole.rpartition("]")
    return encoded(before + "\n"), encoded("\n]" + after)


def _line(fields: tuple[str, ...]) -> bytes:
    return encoded(",".join(fields) + "\n")


class _replacing:
    """A file that gets its name only when it is complete and on disk."""

    def __init__(self, path: Path) -> None:
        self._path, self._draft = path, path.with_name(f".{path.name}.part")
        self._ahead = 0

    def __enter__(self) -> _replacing:
        self._file = self._draft.open("wb")
        return self

    def write(self, text: bytes) -> None:
        """Syncs every `_MOST_AHEAD` bytes, so that progress is true and a full disk is noticed early."""
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
            self._draft.replace(self._path)
            sync(self._path.parent)
        else:
            self._draft.unlink(missing_ok=True)
