"""Details of one benchmark for the benchmarks screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kgops.experiments.benchmark_list import OPTIONS, Entry
from kgops.experiments.benchmark_results import FAILED, Series
from kgops.experiments.claims import Page, page
from kgops.experiments.fingerprint import machine_line
from kgops.experiments.summary import Row, rows
from kgops.experiments.trial_result import Spread
from storage import benches
from storage.database import Connection


class Detail(NamedTuple):
    """Everything known about an entry; missing fields are empty."""

    name: str
    command: str
    machine: str = ""  # its fingerprint in one line
    state: str = ""
    series: Series | None = None  # its results over time
    first: Row | None = None  # the baseline
    rows: tuple[Row, ...] = ()
    curves: tuple[tuple[str, tuple[Curve, ...]], ...] = ()  # by varied option
    options: Page | None = None  # which options pay here


def entry_detail(conn: Connection, entry: Entry) -> Detail:
    if entry.series is None:
        return Detail(entry.name, entry.command, options=page(conn) if entry.key == OPTIONS else None)
    newest = entry.series.newest
    detail = Detail(entry.name, entry.command, machine_line(conn, newest.machine), series=entry.series)
    bench = benches.get(conn, newest.bench)
    if bench is None:
        return detail._replace(state="it is no longer in the record")
    table = rows(conn, bench) if bench.plan.get("variants") else []
    state = entry.series.results[-1].state
    return detail._replace(
        state="the newest benchmark failed" if state == FAILED else state,
        first=next(iter(table), None),
        rows=tuple(table[1:]),
        curves=tuple((axis, tuple(each)) for axis, each in curves_by_size(table, bench.plan).items() if each),
    )


@dataclass(frozen=True)
class Curve:
    name: str
    points: tuple[tuple[float, Spread], ...]


def curves_by_size(rows: Sequence[Row], plan: Mapping[str, Any]) -> dict[str, list[Curve]]:
    """Curves of seconds for each varied name; empty if its values are not numbers."""
    varied = {one["name"]: one.get("varied") or {} for one in plan["variants"]}
    axes = dict.fromkeys(name for setting in varied.values() for name in setting)
    return {axis: list(_curves(axis, rows, varied)) for axis in axes}


def _curves(axis: str, rows: Sequence[Row], varied: Mapping[str, Mapping[str, Any]]) -> Iterator[Curve]:
    """One curve over the axis for each combination of the other varied options."""
    groups: dict[str, list[tuple[float, Spread]]] = {}
    for row in rows:
        setting = varied.get(row.variant, {})
        size = setting.get(axis)
        if row.seconds is None or isinstance(size, bool) or not isinstance(size, (int, float)):
            continue
        rest = " ".join(f"{name}={_word(value)}" for name, value in setting.items() if name != axis)
        groups.setdefault(rest or "time", []).append((float(size), row.seconds))
    for name, points in groups.items():
        if len(points) > 1:
            yield Curve(name, tuple(points))


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
