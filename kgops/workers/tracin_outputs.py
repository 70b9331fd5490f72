"""What a TracIn run writes while it goes and at its end: files for people and rows for the record."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kgops.jobs import events
from kgops.jobs.files import write_json
from kgops.tracin.parts import Part, Parts
from kgops.tracin.results import Table, as_json, file_stem, found_events, write_csv
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
        mine = [parts.read(number) for number in self._tests]
        pairs = [(self._tests[part.number], part) for part in mine]
        if self._parquet:
            from kgops.tracin.parquet import write_parquet  # pyarrow is heavy, and not everybody's

            write_parquet(self._results / "tracin.parquet", self._table, pairs)
        if self._batch:
            for test, part in pairs:
                if not (self._results / f"{file_stem(test)}{self._ending}.json").exists():
                    self._write_own_files(test, part)
            write_json(self._results / SUMMARY, self._summary(pairs))
        else:
            self._write_together(pairs)
        return sum(part.trouble is not None for part in mine)

    @property
    def _ending(self) -> str:
        return "_tracin" if self._scored else "_filtered"

    def _write_own_files(self, test: TestTriple, part: Part) -> None:
        if part.trouble is not None:
            return  # the summary says why
        stem = f"{file_stem(test)}{self._ending}"
        if not self._scored:
            self._write_triples(self._results / f"{stem}.tsv", part)
        elif not self._parquet:
            write_csv(self._results / f"{stem}.csv", self._table, [(test, part)])
        most = MOST_IN_JSON if self._scored else 0
        write_json(self._results / f"{stem}.json", as_json(self._table, test, part, self._about, most))

    def _write_triples(self, path: Path, part: Part) -> None:
        lines = ("\t".join(labels) + "\n" for labels in self._table.labels(part.rows))
        path.write_text("".join(lines), encoding="utf-8")

    def _write_together(self, pairs: Sequence[tuple[TestTriple, Part]]) -> None:
        if not self._parquet:
            write_csv(self._results / "tracin.csv", self._table, pairs)
        body = [as_json(self._table, test, part, {}, MOST_IN_JSON) for test, part in pairs]
        write_json(self._results / "tracin.json", {**self._about, "results": body})

    def _summary(self, pairs: Sequence[tuple[TestTriple, Part]]) -> dict[str, Any]:
        failed = sum(part.trouble is not None for _, part in pairs)
        return {
            "total_triples": len(pairs),
            "successful": len(pairs) - failed,
            "failed": failed,
            "elapsed_seconds": round(time.monotonic() - self._begin, 3),
            **self._about,
            "results": [self._line(test, part) for test, part in pairs],
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
