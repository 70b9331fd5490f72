"""Writes the results of a TracIn run: CSV, JSON and Parquet files, and attribution events."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from kgops.jobs import events
from kgops.jobs.files import write_json
from kgops.maths.tracin.finished_tests import FinishedTest, FinishedTests
from kgops.maths.tracin.influence_files import Add, csv_file, json_file
from kgops.maths.tracin.results import Table, attribution_event, file_stem
from kgops.maths.tracin.test_triples import TestTriple
from kgops.maths.worker.report import Reporter
from kgops.maths.worker.reporter import Progress
from kgops.workloads.tracin.job import Formats
from kgops.workloads.tracin.options import TRACIN_INFLUENCES_IN_RECORD, TRACIN_TESTS_IN_RECORD

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
            from kgops.maths.tracin.influence_files import (
                parquet_file,
            )  # pyarrow is optional and slow to import

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
