"""What a TracIn run writes while it goes and at its end: files for people and rows for the record."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from kgops.jobs import events
from kgops.jobs.files import write_json
from kgops.tracin.found_files import Add, csv_file, json_file
from kgops.tracin.parts import Part, Parts
from kgops.tracin.results import Table, file_stem, found_events
from kgops.tracin.tests_to_trace import TestTriple
from kgops.workers.report import Reporter

__all__ = ["SUMMARY", "Outputs"]

SUMMARY = "batch_tracin_summary.json"
MOST_IN_JSON = 1000  # of each test triple: the CSV has the rest
MOST_IN_RECORD = 50  # proponents, and opponents, of each test triple
MOST_TESTS_IN_RECORD = 2000


class Outputs:
    """`batch`: files for each test triple and a summary, as batch_tracin_with_filtering.py left them; else
    one CSV and one JSON. `scored` is off where the run only filters."""

    def __init__(
        self,
        results: Path,
        table: Table,
        tests: Sequence[TestTriple],
        report: Reporter,
        *,
        batch: bool,
        scored: bool,
        parquet: bool,
        about: Mapping[str, Any],
    ) -> None:
        self._results, self._table, self._report = results, table, report
        self._tests = {test.number: test for test in tests}
        self._batch, self._scored, self._parquet, self._about = batch, scored, parquet, about
        self._begin = time.monotonic()

    def tile(self, parts: Iterable[Part]) -> None:
        """Told and, in a batch, written as soon as they are found."""
        for part in parts:
            test = self._tests[part.number]
            if test.number <= MOST_TESTS_IN_RECORD:
                self._report.send(events.TRACED, **found_events(self._table, test, part, MOST_IN_RECORD))
            if self._batch:
                self._write_own_files(test, part)

    def finish(self, parts: Parts) -> int:
        """Everything that is still to be written; how many test triples failed."""
        if len(self._tests) > MOST_TESTS_IN_RECORD:
            self._report.note(
                f"the record keeps the first {MOST_TESTS_IN_RECORD:,} test triples; the files all."
            )
        lines = []
        with ExitStack() as files:
            together = [files.enter_context(file) for file in self._together()]
            for number, test in self._tests.items():
                part = parts.read(number)
                for add in together:
                    add(test, part)
                if self._batch and not (self._results / f"{file_stem(test)}{self._ending}.json").exists():
                    self._write_own_files(test, part)
                lines.append(self._line(test, part))
        if self._batch:
            write_json(self._results / SUMMARY, self._summary(lines))
        return sum(not line["success"] for line in lines)

    @property
    def _ending(self) -> str:
        return "_tracin" if self._scored else "_filtered"

    def _together(self) -> Iterator[AbstractContextManager[Add]]:
        """The files that hold all test triples."""
        if self._parquet:
            from kgops.tracin.parquet import parquet_file  # pyarrow is heavy, and not everybody's

            yield parquet_file(self._results / "tracin.parquet", self._table)
        elif not self._batch:
            yield csv_file(self._results / "tracin.csv", self._table)
        if not self._batch:
            path = self._results / "tracin.json"
            yield json_file(path, self._table, self._about, MOST_IN_JSON, of_many=True)

    def _write_own_files(self, test: TestTriple, part: Part) -> None:
        if part.trouble is not None:
            return  # the summary says why
        stem = f"{file_stem(test)}{self._ending}"
        if not self._scored:
            self._write_triples(self._results / f"{stem}.tsv", part)
        elif not self._parquet:
            with csv_file(self._results / f"{stem}.csv", self._table) as add:
                add(test, part)
        path, most = self._results / f"{stem}.json", MOST_IN_JSON if self._scored else 0
        with json_file(path, self._table, self._about, most, of_many=False) as add:
            add(test, part)

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
        written = ".tsv" if not self._scored else None if self._parquet else ".csv"
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
