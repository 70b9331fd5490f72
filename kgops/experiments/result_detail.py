"""Details of one benchmark, or of one command's values, for the benchmarks screen."""

from __future__ import annotations

from typing import NamedTuple

from kgops.experiments.benchmark_list import OPTIONS, Entry
from kgops.experiments.charts import Curve, curves_by_size
from kgops.experiments.claims import Page, page
from kgops.experiments.fingerprint import differences, machine_line
from kgops.experiments.summary import Row, rows
from storage import benches, measurements
from storage.benches import Metric
from storage.database import Connection


class Detail(NamedTuple):
    """Everything known about an entry; missing fields are empty."""

    name: str
    command: str
    machine: str = ""  # its fingerprint in one line
    differs: tuple[str, ...] = ()  # differences to the fingerprint in view
    state: str = ""
    first: Row | None = None  # the baseline
    rows: tuple[Row, ...] = ()
    metrics: tuple[Metric, ...] = ()
    curves: tuple[tuple[str, tuple[Curve, ...]], ...] = ()  # by varied option
    options: Page | None = None  # which options pay here


def entry_detail(conn: Connection, entry: Entry, looked_at: str | None) -> Detail:
    """Detail of an entry; `looked_at` is the fingerprint key of the machine in view."""
    if entry.machine is None:
        return Detail(entry.name, entry.command, options=page(conn) if entry.key == OPTIONS else None)
    detail = Detail(entry.name, entry.command, *_machine(conn, entry.machine, looked_at))
    if not isinstance(entry.key, int):
        return detail._replace(metrics=tuple(benches.newest_of(conn, entry.command, entry.machine)))
    bench = benches.get(conn, entry.key)
    if bench is None:
        return detail._replace(state="it is no longer in the record")
    table = rows(conn, bench)
    done, planned = len(benches.pairs(conn, bench.id)), bench.plan["rounds"] * (len(table) - 1)
    return detail._replace(
        state="" if bench.ended_at else f"unfinished: {done} of {planned} pairs",
        first=table[0],
        rows=tuple(table[1:]),
        curves=tuple((axis, tuple(each)) for axis, each in curves_by_size(table, bench.plan).items() if each),
    )


def _machine(conn: Connection, key: str, looked_at: str | None) -> tuple[str, tuple[str, ...]]:
    if looked_at is None or key == looked_at:
        return machine_line(conn, key), ()
    bodies = (measurements.fingerprint(conn, one) for one in (key, looked_at))
    return machine_line(conn, key), tuple(differences(*bodies)) or ("another machine",)
