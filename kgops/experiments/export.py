"""Export of benchmarks and values as JSON, CSV, Markdown, Parquet and charts."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kgops.errors import Unavailable, Usage
from kgops.experiments.charts import cost_against_size, curves_by_size, speed_against_memory
from kgops.experiments.fingerprint import machine_line
from kgops.experiments.summary import Row, rows
from kgops.experiments.trial_result import Spread
from kgops.experiments.verdicts import RULE, shown
from kgops.jobs.cluster import make_folder_of, must_be_free, written
from kgops.jobs.text import one_line
from kgops.present.pictures import Picture
from storage import benches, measurements
from storage.benches import Bench
from storage.database import Connection
from storage.measurements import Measurement

_FORMULA = ("=", "+", "-", "@")  # a spreadsheet would run a cell that begins so


def as_table(conn: Connection, bench: Bench) -> dict[str, Any]:
    """A benchmark with all of its pairs and the values of each run."""
    return {
        **{name: value for name, value in asdict(bench).items() if name != "fingerprint"},
        "fingerprint": measurements.fingerprint(conn, bench.fingerprint),
        "fingerprint_key": bench.fingerprint,
        "rule": RULE,
        "row": [asdict(row) for row in rows(conn, bench)],
        "pair": [asdict(pair) for pair in benches.pairs(conn, bench.id)],
    }


def metric_table(values: Sequence[Measurement]) -> list[dict[str, Any]]:
    """One flat row for each measurement, with its fingerprint as key and as JSON."""
    return [
        {
            **{name: value for name, value in asdict(m).items() if name != "fingerprint"},
            "fingerprint_key": m.machine,
            "fingerprint": json.dumps(m.fingerprint, sort_keys=True),
        }
        for m in values
    ]


def as_json(values: Sequence[Measurement]) -> str:
    return json.dumps([{**asdict(m), "fingerprint_key": m.machine} for m in values], indent=1) + "\n"


def as_csv(values: Sequence[Measurement]) -> str:
    out = io.StringIO()
    table = metric_table(values)
    if table:
        writer = csv.DictWriter(out, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in table)
    return out.getvalue()


def write_parquet(values: Sequence[Measurement], path: Path, *, force: bool = False) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise Unavailable(
            "Parquet needs pyarrow, which is not installed", "pip install 'kgops[parquet]'"
        ) from error
    types = {
        "run": pa.int64(),
        "bench": pa.int64(),
        "n": pa.int64(),
        "value": pa.float64(),
        "low": pa.float64(),
    }
    types |= {"high": pa.float64(), "at": pa.float64()}
    names = [*measurements.COLUMNS_PLAIN, "fingerprint_key", "fingerprint"]
    schema = pa.schema([(name, types.get(name, pa.string())) for name in names])
    must_be_free(path, force=force)
    try:
        with written(path) as file:
            pq.write_table(pa.Table.from_pylist(metric_table(values), schema=schema), file)
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {os.strerror(error.errno or 0)}") from error


def as_markdown(conn: Connection, bench: Bench) -> str:
    measured = rows(conn, bench)
    first = measured[0]
    lines = [
        f"**{_md(bench.name)}**: each variant against {_md(first.variant)}, pair by pair; medians (quartiles).",
        "",
        f"| variant | time, {first.seconds_of or 'n/a'} | times faster | n | memory | times less memory | verdict |",
        "|---|---|---|---|---|---|---|",
        *(_md_row(row) for row in measured),
        "",
        f"Command: `{bench.command}`. Memory: {first.memory_of or 'n/a'}.",
        f"Fingerprint {machine_line(conn, bench.fingerprint)}.",
        *_md_notes(measured),
        RULE,
    ]
    return "\n".join(lines) + "\n"


def charts(conn: Connection, bench: Bench) -> dict[str, Picture]:
    """Charts by the suffix of their file name, without empty ones."""
    measured = rows(conn, bench)
    drawn = {"memory": speed_against_memory(f"{bench.name}: speed against memory", measured)}
    for axis, curves in curves_by_size(measured, bench.plan).items():
        title = f"{bench.name}: time against {axis}"
        drawn[axis] = (
            cost_against_size(title, axis, f"seconds ({measured[0].seconds_of})", curves) if curves else None
        )
    return {name: picture for name, picture in drawn.items() if picture is not None}


def write(path: Path, content: str | bytes, *, force: bool) -> None:
    try:
        make_folder_of(path)
        with path.open("wb" if force else "xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except FileExistsError as error:
        raise Usage(f"{path} already exists", "--force overwrites it") from error
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}") from error


def _md_row(row: Row) -> str:
    alone = row.variant == row.baseline
    time, memory = row.seconds, row.memory_mib
    cells = [
        _md(row.variant),
        f"{time.median:.4g} s" if time else "n/a",
        "1" if alone else _md_spread(row.speed),
        str((row.seconds.n if row.seconds else 0) if alone else row.speed.n if row.speed else 0),
        f"{memory.median:,.1f} MiB" if memory else "n/a",
        "1" if alone else _md_spread(row.memory),
        shown(row.verdict, _md(row.why)),
    ]
    return "| " + " | ".join(cells) + " |"


def _md_notes(measured: Sequence[Row]) -> list[str]:
    off = [
        f"{_md(row.variant)}: {name} was not applied ({_md(why)})."
        for row in measured
        for name, why in row.unapplied.items()
    ]
    busy = max((row.busy for row in measured if row.busy is not None), default=0.0)
    return off + (
        [f"Busy machine: other processes used {busy:.0%} of the CPUs before the rounds."]
        if busy > 0.15
        else []
    )


def _md_spread(one: Spread | None) -> str:
    return "n/a" if one is None else f"{one.median:.2f} ({one.low:.2f}–{one.high:.2f})"


def _md(text: str) -> str:
    return one_line(text).replace("|", "\\|")


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return "" if value is None else value
    return f"'{value}" if value.startswith(_FORMULA) else value
