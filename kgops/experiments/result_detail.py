"""Details of one benchmark, or of one command's values, for the benchmarks screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kgops.experiments.benchmark_list import OPTIONS, Entry
from kgops.experiments.benchmark_results import FAILED, Change, Series, compared
from kgops.experiments.claims import Page, page
from kgops.experiments.fingerprint import hardware, machine_line
from kgops.experiments.summary import Row, rows
from kgops.experiments.trial_result import Spread
from storage import benches, measurements
from storage.benches import Metric
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
    metrics: tuple[ValueOverTime, ...] = ()
    curves: tuple[tuple[str, tuple[Curve, ...]], ...] = ()  # by varied option
    options: Page | None = None  # which options pay here


def entry_detail(conn: Connection, entry: Entry) -> Detail:
    if entry.machine is None:
        return Detail(entry.name, entry.command, options=page(conn) if entry.key == OPTIONS else None)
    detail = Detail(entry.name, entry.command, machine_line(conn, entry.machine), series=entry.series)
    if entry.series is None:
        return detail._replace(metrics=tuple(_over_time(conn, entry)))
    bench = benches.get(conn, entry.series.newest.bench)
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


class ValueOverTime(NamedTuple):
    """The newest value of a command, and its changes, if it was measured before."""

    newest: Metric
    than_before: Change | None
    since_first: Change | None


def _over_time(conn: Connection, entry: Entry) -> Iterator[ValueOverTime]:
    """Values of the command on this kind of machine, by name and subject."""
    machine = hardware(measurements.fingerprint(conn, entry.machine or ""))
    kinds: dict[str, bool] = {}
    known: dict[tuple[str, str], list[Metric]] = {}
    for one in benches.of_command(conn, entry.command):
        if one.machine not in kinds:
            kinds[one.machine] = hardware(measurements.fingerprint(conn, one.machine)) == machine
        if kinds[one.machine]:
            known.setdefault((one.name, one.subject), []).append(one)
    for values in known.values():
        newest, *before = _spread(values[-1]), *map(_spread, values[-2::-1])
        changes = [compared(one, newest) for one in (before[0], before[-1])] if before else [None, None]
        yield ValueOverTime(values[-1], *changes)


def _spread(one: Metric) -> Spread:
    return Spread(
        one.value,
        one.value if one.low is None else one.low,
        one.value if one.high is None else one.high,
        one.n,
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
