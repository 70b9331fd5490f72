"""What a TracIn run writes while it goes and at its end: files for people and rows for the record."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from kgops.jobs import events
from kgops.jobs.chunk_sizes import TRACIN_INFLUENCES_IN_RECORD, TRACIN_TESTS_IN_RECORD
from kgops.jobs.files import write_json
from kgops.jobs.tracin import Formats
from kgops.tracin.finished_tests import Part, Parts
from kgops.tracin.influence_files import Add, csv_file, json_file
from kgops.tracin.results import Table, file_stem, found_events
from kgops.tracin.test_triples import TestTriple
from kgops.training.reporter import Progress
from kgops.workers.report import Reporter

__all__ = ["SUMMARY", "Outputs"]

SUMMARY = "batch_tracin_summary.json"


class Writing:
    """Rows of files as progress of its own: what was scored is not yet what can be read."""

    def __init__(self, report: Reporter, rows: int) -> None:
        self._progress = Progress(report, "writing", "rows")
        self._rows, self._written = rows, 0

    def wrote(self, rows: int) -> None:
        self._written += rows
        self._progress(self._written, self._rows)


class Outputs:
    """In the formats that were asked for; of a batch also files for each test triple and a summary, as
    batch_tracin_with_filtering.py left them. `scored` is off where the run only filters."""

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

    def tile(self, parts: Iterable[Part]) -> None:
        """Told and, in a batch, written as soon as they are found."""
        for part in parts:
            test = self._tests[part.number]
            if test.number <= TRACIN_TESTS_IN_RECORD:
                self._report.send(
                    events.ATTRIBUTION, **found_events(self._table, test, part, TRACIN_INFLUENCES_IN_RECORD)
                )
            if self._formats.own_files:
                self._write_own_files(test, part)

    def finish(self, parts: Parts) -> int:
        """Everything that is still to be written; how many test triples failed."""
        if len(self._tests) > TRACIN_TESTS_IN_RECORD:
            self._report.note(
                f"the record keeps the first {TRACIN_TESTS_IN_RECORD:,} test triples; the files all."
            )
        lines = []
        writing = Writing(self._report, parts.rows * self._files_of_all)
        with ExitStack() as files:
            together = [files.enter_context(file) for file in self._together(writing)]
            for number, test in self._tests.items():
                part = parts.read(number)
                for add in together:
                    add(test, part)
                own = self._results / f"{file_stem(test)}{self._ending}.json"
                if self._formats.own_files and not own.exists():
                    self._write_own_files(test, part)
                lines.append(self._line(test, part))
        if self._formats.own_files:
            write_json(self._results / SUMMARY, self._summary(lines))
        return sum(not line["success"] for line in lines)

    @property
    def _ending(self) -> str:
        return "_tracin" if self._scored else "_filtered"

    @property
    def _files_of_all(self) -> int:
        return self._formats.parquet + self._formats.csv + self._formats.json

    def _together(self, writing: Writing) -> Iterator[AbstractContextManager[Add]]:
        """The files that hold all test triples."""
        if self._formats.parquet:
            from kgops.tracin.parquet import parquet_file  # pyarrow is heavy, and not everybody's

            yield parquet_file(self._results / "tracin.parquet", self._table, writing.wrote)
        if self._formats.csv:
            yield csv_file(self._results / "tracin.csv", self._table, writing.wrote)
        if self._formats.json:
            path = self._results / "tracin.json"
            yield json_file(path, self._table, self._about, of_many=True, wrote=writing.wrote)

    def _write_own_files(self, test: TestTriple, part: Part) -> None:
        if part.trouble is not None:
            return  # the summary says why
        stem = f"{file_stem(test)}{self._ending}"
        if not self._scored:
            self._write_triples(self._results / f"{stem}.tsv", part)
        elif not self._formats.parquet:
            with csv_file(self._results / f"{stem}.csv", self._table) as add:
                add(test, part)
        with json_file(self._results / f"{stem}.json", self._table, self._about, of_many=False) as add:
            add(test, part if self._scored else replace(part, rows=part.rows[:0], scores=part.scores[:0]))

    def _write_triples(self, path: Path, part: Part) -> None:
        lines = ("\t".join(labels) + "\n" for labels in self._table.labels(part.rows))
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

    def _line(self, test: TestTriple, part: Part) -> dict[str, Any]:
        stem, (head, relation, tail) = f"{file_stem(test)}{self._ending}", test.labels
        fine = part.trouble is None
        written = ".tsv" if not self._scored else None if self._formats.parquet else ".csv"
        return {
            "index": test.number,
            "head": head,
            "relation": relation,
            "tail": tail,
            "success": fine,
            "error": part.trouble,
            "num_training_triples": part.candidates,
            "csv": f"{stem}{written}" if fine and written else None,
            "json": f"{stem}.json" if fine else None,
        }
