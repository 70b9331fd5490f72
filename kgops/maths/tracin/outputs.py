"""Writes the results of a TracIn run: CSV, JSON and Parquet files, and attribution events."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import IO, Any

import torch

from kgops.errors import Usage
from kgops.jobs import events
from kgops.jobs.files import draft_of, import_pyarrow, write_json
from kgops.maths.tracin.finished_tests import FinishedTest, FinishedTests
from kgops.maths.tracin.results import Table, as_object, attribution_event, csv_line, encoded, file_stem
from kgops.maths.tracin.test_triples import TestTriple
from kgops.maths.worker.report import Progress, Reporter
from kgops.workloads.tracin.job import Formats
from kgops.workloads.tracin.options import TRACIN_INFLUENCES_IN_RECORD, TRACIN_TESTS_IN_RECORD

_WITHOUT_PARQUET = "`pip install 'kgops[parquet]'`, or leave out --parquet to get CSV."


@contextmanager
def parquet_file(path: Path, table: Table, wrote: Wrote) -> Iterator[Add]:
    """No file if no test triple could be scored."""
    pa = import_pyarrow(_WITHOUT_PARQUET, Usage)
    groups = _groups(pa, table)
    writer = None
    with ExitStack() as files:

        def add(test: TestTriple, influences: FinishedTest) -> None:
            nonlocal writer
            if test.ids is None:
                return
            group = groups(test, influences)
            if writer is None:
                draft = files.enter_context(draft_of(path))
                writer = files.enter_context(pa.parquet.ParquetWriter(draft, group.schema))
            writer.write_table(group)
            wrote(len(influences.rows))

        yield add


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
    triple are one object. Influences without scores are written as triples only."""
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
    file: _Synced, table: Table, rows: torch.Tensor, scores: torch.Tensor, wrote: Wrote
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


@contextmanager
def _replacing(path: Path) -> Iterator[_Synced]:
    """A file that gets its name only when it is complete and on disk."""
    with draft_of(path) as draft, draft.open("wb") as file:
        yield _Synced(file)
        file.flush()
        os.fsync(file.fileno())


class _Synced:
    """Syncs every `_MOST_AHEAD` bytes, so that progress is true and a full disk is noticed early."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._ahead = file, 0

    def write(self, text: bytes) -> None:
        self._file.write(text)
        self._ahead += len(text)
        if self._ahead >= _MOST_AHEAD:
            self._file.flush()
            os.fdatasync(self._file.fileno())
            self._ahead = 0


SUMMARY = "batch_tracin_summary.json"


class Writing:
    """Reports the rows written as progress."""

    def __init__(self, report: Reporter, rows: int) -> None:
        self._progress = Progress(report, "writing", "rows")
        self._rows, self._written = rows, 0

    def wrote(self, rows: int) -> None:
        self._written += rows
        self._progress(self._written, self._rows)


class Outputs:
    """Writes the requested formats; for a batch also files for each test triple and a summary, as
    batch_tracin_with_filtering.py did. `scored` is False if the run only filters."""

    def __init__(
        self,
        results: Path,
        table: Table,
        tests: Sequence[TestTriple],
        report: Reporter,
        *,
        formats: Formats,
        scored: bool,
        about: Mapping[str, Any],
    ) -> None:
        self._results, self._table, self._report = results, table, report
        self._tests = {test.number: test for test in tests}
        self._formats, self._scored, self._about = formats, scored, about
        self._begin = time.monotonic()

    def tile(self, finished: Iterable[FinishedTest]) -> None:
        """Sends the events of finished tests and, in a batch, writes their files."""
        for influences in finished:
            test = self._tests[influences.number]
            if test.number <= TRACIN_TESTS_IN_RECORD:
                self._report.send(
                    events.ATTRIBUTION,
                    **attribution_event(self._table, test, influences, TRACIN_INFLUENCES_IN_RECORD),
                )
            if self._formats.own_files:
                self._write_test_files(test, influences)

    def finish(self, finished: FinishedTests) -> int:
        """Writes the combined files; returns how many test triples failed."""
        if len(self._tests) > TRACIN_TESTS_IN_RECORD:
            self._report.note(
                f"the database keeps the first {TRACIN_TESTS_IN_RECORD:,} test triples; the files have all."
            )
        lines, alone = [], 0
        writing = Writing(self._report, finished.rows * self._files_of_all)
        with ExitStack() as files:
            combined = [files.enter_context(file) for file in self._combined_files(writing)]
            for number, test in self._tests.items():
                influences = finished.read(number)
                for add in combined:
                    add(test, influences)
                own = self._results / f"{file_stem(test)}{self._ending}.json"
                if self._formats.own_files and not own.exists():
                    self._write_test_files(test, influences)
                lines.append(self._line(test, influences))
                alone += influences.trouble is None and not influences.candidates
        if alone:
            self._report.note(
                f"filtering leaves {alone:,} of {len(self._tests):,} test triples no training triple; "
                "give a larger --n-hops, or --skip-filtering."
            )
        if self._formats.own_files:
            write_json(self._results / SUMMARY, self._summary(lines))
        return sum(not line["success"] for line in lines)

    @property
    def _ending(self) -> str:
        return "_tracin" if self._scored else "_filtered"

    @property
    def _files_of_all(self) -> int:
        return self._formats.parquet + self._formats.csv + self._formats.json

    def _combined_files(self, writing: Writing) -> Iterator[AbstractContextManager[Add]]:
        """The files that hold all test triples."""
        if self._formats.parquet:
            yield parquet_file(self._results / "tracin.parquet", self._table, writing.wrote)
        if self._formats.csv:
            yield csv_file(self._results / "tracin.csv", self._table, writing.wrote)
        if self._formats.json:
            path = self._results / "tracin.json"
            yield json_file(path, self._table, self._about, of_many=True, wrote=writing.wrote)

    def _write_test_files(self, test: TestTriple, influences: FinishedTest) -> None:
        if influences.trouble is not None:
            return  # the summary says why
        stem = f"{file_stem(test)}{self._ending}"
        if not self._scored:
            self._write_triples(self._results / f"{stem}.tsv", influences)
        elif not self._formats.parquet:
            with csv_file(self._results / f"{stem}.csv", self._table) as add:
                add(test, influences)
        with json_file(self._results / f"{stem}.json", self._table, self._about, of_many=False) as add:
            add(
                test,
                influences
                if self._scored
                else replace(influences, rows=influences.rows[:0], scores=influences.scores[:0]),
            )

    def _write_triples(self, path: Path, influences: FinishedTest) -> None:
        lines = ("\t".join(labels) + "\n" for labels in self._table.labels(influences.rows))
        path.write_text("".join(lines), encoding="utf-8")

    def _summary(self, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        failed = sum(not line["success"] for line in lines)
        return {
            "total_triples": len(lines),
            "successful": len(lines) - failed,
            "failed": failed,
            "elapsed_seconds": round(time.monotonic() - self._begin, 3),
            **self._about,
            "results": lines,
        }

    def _line(self, test: TestTriple, influences: FinishedTest) -> dict[str, Any]:
        stem, (head, relation, tail) = f"{file_stem(test)}{self._ending}", test.labels
        fine = influences.trouble is None
        written = ".tsv" if not self._scored else None if self._formats.parquet else ".csv"
        return {
            "index": test.number,
            "head": head,
            "relation": relation,
            "tail": tail,
            "success": fine,
            "error": influences.trouble,
            "num_training_triples": influences.candidates,
            "csv": f"{stem}{written}" if fine and written else None,
            "json": f"{stem}.json" if fine else None,
        }
