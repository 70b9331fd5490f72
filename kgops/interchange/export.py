"""Export the table of runs as CSV or JSON, block by block, in constant memory."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kgops.jobs.numbers import finite_json
from kgops.jobs.run_options import must_be_free, written
from kgops.jobs.text import one_line
from storage import reports, run_list, runs, series
from storage.database import Connection
from storage.runs import COLUMNS
from storage.transfer import Rows

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


TABLES: dict[str, tuple[str, ...]] = {
    "runs": (*COLUMNS, "tags"),
    "metrics": ("run", "label", "name", "value"),
    "series": ("run", "name", "n", "step", "value", "at"),
}
Line = Sequence[Any]


def write_csv(runs: Iterator[Rows], target: Path, *, force: bool) -> None:
    """The tables in a folder, or the table of runs as a file whose name ends with .csv. Numbers have all digits; NaN
    and infinity are empty cells."""
    paths = _paths(target, force)
    with ExitStack() as files:
        out = {name: files.enter_context(written(path)) for name, path in paths.items()}
        for name, file in out.items():
            file.write(csv_line(list(TABLES[name])).encode())
        for rows in runs:
            for name, lines in _lines(rows):
                if name in out:
                    out[name].writelines(csv_line([cell(x) for x in line]).encode() for line in lines)


def _paths(target: Path, force: bool) -> dict[str, Path]:
    is_file = target.suffix == ".csv"
    paths = {"runs": target} if is_file else {name: target / f"{name}.csv" for name in TABLES}
    for path in paths.values():
        must_be_free(path, force=force)
        path.parent.mkdir(parents=True, exist_ok=True)
    return paths


def _lines(rows: Rows) -> Iterator[tuple[str, Iterator[Line]]]:
    run = rows.run
    tags = " ".join(row["tag"] for row in rows.tables["tag"])
    yield "runs", iter([[*(run[name] for name in COLUMNS), tags]])
    yield "metrics", ((run["id"], run["label"], row["name"], row["value"]) for row in rows.tables["metric"])
    yield (
        "series",
        (
            (run["id"], curve.name, n, *point)
            for curve in rows.curves
            for n, point in enumerate(zip(curve.steps, curve.values, curve.times, strict=True))
        ),
    )
