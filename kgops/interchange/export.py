"""Export the table of runs as CSV or JSON, block by block, in constant memory."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from kgops.jobs.numbers import finite_json
from kgops.jobs.text import one_line
from storage import reports, run_list, runs, series
from storage.database import Connection

_BLOCK = 500
_FORMULA = ("=", "+", "-", "@")  # a spreadsheet would evaluate such a cell


def as_csv(conn: Connection, numbers: Sequence[int], metrics: Sequence[str] = ()) -> Iterator[str]:
    """A header, then a line for each run: its fields, its tags, and the requested metrics."""
    yield csv_line([*runs.FIELDS, "tags", *metrics])
    for row in _rows(conn, numbers, metrics):
        yield csv_line([cell(value) for value in row.values()])


def as_json(conn: Connection, numbers: Sequence[int], metrics: Sequence[str] = ()) -> Iterator[str]:
    """One list with an element on each line; tags are a list and metrics a table."""
    before = "["
    for row in _rows(conn, numbers, metrics):
        element = {name: value for name, value in row.items() if name not in metrics}
        element["tags"] = row["tags"].split()
        element["metrics"] = {name: row[name] for name in metrics}
        yield before + json.dumps(finite_json(element))
        before = ",\n "
    yield "]\n" if before != "[" else "[]\n"


def _rows(conn: Connection, numbers: Sequence[int], metrics: Sequence[str]) -> Iterator[dict[str, Any]]:
    for first in range(0, len(numbers), _BLOCK):
        block = list(numbers[first : first + _BLOCK])
        tags = reports.tags_of_runs(conn, block)
        by_metric = {name: series.of_runs(conn, block, name) for name in metrics}
        for run in run_list.of_numbers(conn, block):
            values = {name: by_metric[name].get(run.id) for name in metrics}
            yield {**runs.as_table(run), "tags": " ".join(tags.get(run.id, ())), **values}


def cell(value: Any) -> Any:
    if not isinstance(value, str):
        return "" if value is None else value
    text = one_line(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def csv_line(cells: Sequence[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()
