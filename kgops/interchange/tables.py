"""Export runs as three tables in CSV or Parquet: `runs`, `metrics`, and `series` with every point of every curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kgops.interchange.export import cell, csv_line
from kgops.jobs.cluster import must_be_free, written
from kgops.jobs.files import import_pyarrow
from storage.runs import COLUMNS, field_types
from storage.transfer import Rows

TABLES: dict[str, dict[str, type]] = {
    "runs": {**{name: field_types()[name] for name in COLUMNS}, "tags": str},
    "metrics": {"run": int, "label": str, "name": str, "value": float},
    "series": {"run": int, "name": str, "n": int, "step": float, "value": float, "at": float},
}
Line = Sequence[Any]


def write_csv(runs: Iterator[Rows], target: Path, *, force: bool) -> None:
    """Numbers with all digits; empty cells for NaN and infinity."""
    paths = _paths(target, "csv", force)
    with ExitStack() as files:
        out = {name: files.enter_context(written(path)) for name, path in paths.items()}
        for name, columns in TABLES.items():
            out[name].write(csv_line(list(columns)).encode())
        for rows in runs:
            for name, lines in _lines(rows):
                out[name].writelines(csv_line([cell(x) for x in line]).encode() for line in lines)


def write_parquet(runs: Iterator[Rows], target: Path, *, force: bool) -> None:
    """The tables with typed columns; a row group for each run."""
    pyarrow = import_pyarrow()
    types = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    schemas = {
        name: pyarrow.schema([(column, types[kind]) for column, kind in columns.items()])
        for name, columns in TABLES.items()
    }
    paths = _paths(target, "parquet", force)
    with ExitStack() as files:
        out = {
            name: files.enter_context(
                pyarrow.parquet.ParquetWriter(files.enter_context(written(path)), schemas[name])
            )
            for name, path in paths.items()
        }
        for rows in runs:
            for name, lines in _lines(rows):
                columns = list(zip(*lines, strict=True)) or [()] * len(TABLES[name])
                out[name].write_table(pyarrow.table(list(map(list, columns)), schema=schemas[name]))


def _paths(target: Path, suffix: str, force: bool) -> dict[str, Path]:
    paths = {name: target / f"{name}.{suffix}" for name in TABLES}
    for path in paths.values():
        must_be_free(path, force=force)
    target.mkdir(parents=True, exist_ok=True)
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
