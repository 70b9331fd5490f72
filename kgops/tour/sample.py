"""The sample data of a tour: imports runs and benchmarks from `sample.json` into a home."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from kgops.experiments.claims import shipped
from kgops.experiments.summary import as_measurements
from kgops.interchange.importing import TOUR
from kgops.settings import Home
from kgops.supervisor.import_record import origin, put_record
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.run_json import read_runs
from kgops.tour import SAMPLE
from storage import benches, measurements
from storage.benches import Pair
from storage.database import Connection

__all__ = ["mark", "put_benches", "put_sample"]

# Columns whose times are relative to the creation of the tour, in seconds.
_TIMES = {
    "run": ("submitted_at", "started_at", "ended_at", "reported_at"),
    "attempt": ("started_at", "ended_at"),
    **dict.fromkeys(("event", "note", "artifact", "measurement"), ("at",)),
}


def put_sample(home: Home, conn: Connection) -> list[int]:
    """Imports the sample runs and benchmarks; returns the run numbers, oldest first."""
    now, sample = time.time(), _sample()
    numbers: dict[int, int] = {}
    for table in sample["runs"]:
        texts, number = table.pop("files"), table["run"]["id"]
        export = {"kgops_export": sample["kgops_export"], "runs": [_at(table, now)]}
        (rows,) = read_runs(conn, json.dumps(export).encode(), SAMPLE)
        numbers[number] = put_record(home, conn, rows, mark(), partial(_write_files, texts))
    put_benches(conn, numbers)
    return list(numbers.values())


def put_benches(conn: Connection, numbers: Mapping[int, int]) -> None:
    """Writes the sample benchmarks; `numbers` maps run numbers of the sample to those in the database."""
    measurements.keep_claims(conn, [held.claim for held in shipped()])
    for bench in _sample()["benches"]:
        _put_bench(conn, bench, numbers, time.time())


def _sample() -> dict[str, Any]:
    text = (files("kgops.tour") / "sample.json").read_text("utf-8")
    sample: dict[str, Any] = json.loads(text)
    return sample


def mark() -> dict[str, Any]:
    """The origin of a sample run."""
    return {**origin(TOUR, Path(SAMPLE)), "on": SAMPLE}


def _at(table: dict[str, Any], now: float) -> dict[str, Any]:
    for name, columns in _TIMES.items():
        for row in [table["run"]] if name == "run" else table[name]:
            row |= {column: now + row[column] for column in columns if row[column] is not None}
    for curve in table["series"]:
        curve["at"] = [now + at for at in curve["at"]]
        if curve["name"].endswith("_memory_mib"):  # sampled by the clock, as supervisors do
            curve["step"] = curve["at"]
    return table


def _write_files(texts: dict[str, str], folder: RunFolder) -> None:
    for path, text in texts.items():
        (folder.path / path).write_text(text)


def _put_bench(conn: Connection, sample: dict[str, Any], numbers: Mapping[int, int], now: float) -> None:
    number = benches.begin(
        conn, sample["name"], sample["plan"], sample["command"], sample["machine"], now + sample["begun"]
    )
    for pair in sample["pairs"]:
        runs = {name: numbers.get(pair[name]) for name in ("baseline_run", "variant_run")}
        benches.add_pair(conn, number, Pair(**{**pair, **runs, "noted": (), "at": now + pair["at"]}))
    benches.end(conn, number, now + sample["ended"])
    bench = benches.get(conn, number)
    assert bench is not None
    measurements.replace_of_bench(conn, number, as_measurements(conn, bench))
