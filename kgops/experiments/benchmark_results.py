"""What benchmarks measured, by machine and over time: the fastest configuration, and whether it became slower."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from kgops.experiments.fingerprint import device, differences, hardware, host_of
from kgops.experiments.summary import FEWEST, NOTHING, Row, is_control, noise_of, rows
from kgops.experiments.trial_result import Spread
from kgops.jobs.text import clock
from kgops.present.formats import amount, seconds_text
from storage import benches
from storage.benches import Bench, Heading
from storage.database import Connection

RULE = (
    "Percentages are of the time. A time is slower or faster if the medians differ by more than "
    f"{NOTHING:.0%}, and by more than the benchmark's own control, and the quartiles do not overlap. "
    f"Otherwise it is within noise. Fewer than {FEWEST} rounds are not judged."
)
FAILED = "failed"
ANOTHER_JOB, ANOTHER_TIME = "another job", "another kind of time"
Judged = Literal["slower", "faster", "within noise", "not comparable"]


class Change(NamedTuple):
    """`factor` is the new time over the old one; `why` says what makes two times not comparable."""

    verdict: Judged
    factor: float | None = None
    why: str = ""

    def __str__(self) -> str:
        if self.factor is None or self.verdict not in ("slower", "faster"):
            return self.why or self.verdict
        if self.factor >= 2:
            return f"{self.factor:.3g}× slower"
        if self.factor <= 0.5:
            return f"{1 / self.factor:.3g}× faster"
        return f"{abs(self.factor - 1):.0%} {self.verdict}"


class Result(NamedTuple):
    """One benchmark: what one command measured at one time on one machine."""

    bench: int
    name: str
    command: str
    at: float
    ended: bool
    done: int  # pairs
    planned: int
    machine: str  # the fingerprint's key
    body: Mapping[str, Any]  # the fingerprint
    rows: tuple[Row, ...]  # measured configurations, the baseline first
    jobs: Mapping[str, str]  # digests by configuration
    noise: float

    def row(self, configuration: str) -> Row | None:
        return next((one for one in self.rows if one.variant == configuration), None)

    @property
    def state(self) -> str:
        if not self.ended:
            return f"unfinished: {self.done} of {self.planned} pairs"
        return "" if self.rows else FAILED

    @property
    def commit(self) -> str:
        git = self.body.get("git") or {}
        return str(git.get("commit") or "")[:8] + ("*" if git.get("changed") else "")

    @property
    def torch(self) -> str:
        return str((self.body.get("packages") or {}).get("torch") or "")


class Fastest(NamedTuple):
    """The fastest configuration; of those within noise of each other, the first one."""

    row: Row
    alike: tuple[str, ...]  # others within noise
    baseline: Row | None  # if it is another one

    @property
    def times(self) -> float | None:
        """How many times as fast as the baseline it is."""
        if self.baseline is None or self.baseline.seconds is None or not seconds_of(self.row).median:
            return None
        return self.baseline.seconds.median / seconds_of(self.row).median


class Step(NamedTuple):
    """One result of a configuration in the course of time."""

    result: Result
    row: Row
    than_before: Change | None  # against the result before; None: the first
    until_now: Change | None  # of the newest result, against this one; None: it is the newest
    changed: tuple[str, ...]  # since the result before, other than commit and torch


class Series(NamedTuple):
    """All results of one benchmark on one kind of machine, the oldest first; at least one."""

    name: str
    hardware: str
    hosts: tuple[str, ...]
    results: tuple[Result, ...]

    @property
    def device(self) -> str:
        return device(self.newest.body)

    @property
    def newest(self) -> Result:
        """The newest result that measured something, else the newest."""
        return next((one for one in reversed(self.results) if one.rows), self.results[-1])

    @property
    def fastest(self) -> Fastest | None:
        return fastest_of(self.newest)

    @property
    def words(self) -> str:
        """What words of a filter are looked for in."""
        names = (row.variant for one in self.results for row in one.rows)
        return " ".join((self.name, self.hardware, *self.hosts, *dict.fromkeys(names))).lower()

    def than_before(self, configuration: str) -> tuple[Result, Change] | None:
        """The newest time against the one before, with that result."""
        return self._against(configuration, -2)

    def since_first(self, configuration: str) -> tuple[Result, Change] | None:
        """The newest time against the first one, with that result."""
        return self._against(configuration, 0)

    def _against(self, configuration: str, at: int) -> tuple[Result, Change] | None:
        measured = self._measured(configuration)
        if len(measured) < 2:
            return None
        return measured[at], change(measured[at], measured[-1], configuration)

    def _measured(self, configuration: str) -> list[Result]:
        return [one for one in self.results if one.row(configuration) is not None]

    def over_time(self, configuration: str) -> list[Step]:
        """The configuration's results, oldest first."""
        measured = self._measured(configuration)
        steps = []
        for i, one in enumerate(measured):
            row, before = one.row(configuration), measured[i - 1] if i else None
            assert row is not None
            steps.append(
                Step(
                    one,
                    row,
                    None if before is None else change(before, one, configuration),
                    None if one is measured[-1] else change(one, measured[-1], configuration),
                    () if before is None else _changed(before, one),
                )
            )
        return steps


def _changed(before: Result, after: Result) -> tuple[str, ...]:
    found = differences(before.body, after.body)
    return tuple(one for one in found if not one.startswith(("git.", "packages.torch:")))


class ResultReader:
    """Reads all series. Keeps what it read of ended benchmarks, which do not change."""

    def __init__(self) -> None:
        self._ended: dict[tuple[int, float], Result | None] = {}

    def read(self, conn: Connection) -> list[Series]:
        """The series with the newest result first."""
        grouped: dict[tuple[str, str], list[Result]] = {}
        for heading in benches.headings(conn):
            one = self._result(conn, heading)
            if one is not None:
                grouped.setdefault((one.name, hardware(one.body)), []).append(one)
        series = [
            Series(name, machine, _hosts(results), tuple(sorted(results, key=lambda one: one.at)))
            for (name, machine), results in grouped.items()
        ]
        return sorted(series, key=lambda one: -one.newest.at)

    def _result(self, conn: Connection, heading: Heading) -> Result | None:
        if heading.ended_at is None:
            return _read(conn, heading.number)
        key = heading.number, heading.ended_at
        if key not in self._ended:
            self._ended[key] = _read(conn, heading.number)
        return self._ended[key]


def _read(conn: Connection, number: int) -> Result | None:
    bench = benches.get(conn, number)
    if bench is None:
        return None
    variants = bench.plan.get("variants") or []
    measured = [one for one in rows(conn, bench) if one.seconds is not None] if variants else []
    controls = [one for one in measured if is_control(one.variant, one.baseline)]
    return Result(
        number,
        _title(bench),
        bench.command,
        bench.ended_at or bench.begun_at,
        bench.ended_at is not None,
        len(benches.pairs(conn, number)),
        int(bench.plan.get("rounds") or 0) * max(len(variants) - 1, 0),
        bench.fingerprint,
        benches.fingerprint(conn, bench.fingerprint),
        tuple(one for one in measured if not is_control(one.variant, one.baseline)),
        {one["name"]: _digest(one.get("job")) for one in variants},
        max((noise_of(one.speed) for one in controls), default=NOTHING),
    )


def _title(bench: Bench) -> str:
    """`matrix nations.toml by batch_size`: one job may be measured by several options, and in several folders."""
    varied = [name for one in bench.plan.get("variants") or [] for name in one.get("varied") or {}]
    matrix, of, job = bench.name.partition("matrix ")
    if not varied or matrix or not of:
        return bench.name
    return f"{of}{PurePath(job).name} by {', '.join(dict.fromkeys(varied))}"


def _digest(job: Any) -> str:
    """Of what the job computes: machines differ in GPU numbers and in folders."""
    kept = {key: value for key, value in (job or {}).items() if key not in ("gpu", "label")}
    return hashlib.sha256(json.dumps(_without_folders(kept), sort_keys=True).encode()).hexdigest()


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_folders(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_folders(one) for one in value]
    return PurePath(value).name if isinstance(value, str) and value.startswith("/") else value


def _hosts(results: Iterable[Result]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(host for one in results if (host := host_of(one.body)) is not None))


def change(old: Result, new: Result, configuration: str) -> Change:
    """The configuration's time in `new` against that in `old`, on one machine or on two."""
    before, after = old.row(configuration), new.row(configuration)
    if before is None or after is None or before.seconds is None or after.seconds is None:
        return Change("not comparable", why="not measured")
    if old.jobs.get(configuration) != new.jobs.get(configuration):
        return Change("not comparable", why=ANOTHER_JOB)
    if before.seconds_of != after.seconds_of:
        return Change("not comparable", why=ANOTHER_TIME)
    return compared(before.seconds, after.seconds, max(old.noise, new.noise))


def compared(old: Spread, new: Spread, noise: float = NOTHING) -> Change:
    """By the rule of `RULE`."""
    if min(old.n, new.n) < FEWEST:
        return Change("not comparable", why="too few rounds")
    if old.median <= 0:
        return Change("not comparable", why="no time")
    factor = new.median / old.median
    if factor > 1 + noise and new.low > old.high:
        return Change("slower", factor)
    if factor < 1 / (1 + noise) and new.high < old.low:
        return Change("faster", factor)
    return Change("within noise", factor)


def fastest_of(result: Result) -> Fastest | None:
    if not result.rows:
        return None
    best = min(result.rows, key=lambda one: seconds_of(one).median)
    of_one_kind = [one for one in result.rows if one.seconds_of == best.seconds_of]
    near = [
        one
        for one in of_one_kind
        if one is best or compared(seconds_of(best), seconds_of(one), result.noise).verdict == "within noise"
    ]
    first = result.rows[0]
    return Fastest(
        near[0],
        tuple(one.variant for one in near[1:]),
        first if first is not near[0] and first.variant == first.baseline else None,
    )


def seconds_of(row: Row) -> Spread:
    assert row.seconds is not None  # results have only rows that were measured
    return row.seconds


def matching(series: Sequence[Series], words: Sequence[str]) -> list[Series]:
    """Those that have every word in the name, in a configuration, or in the machine's GPU, CPU or host."""
    lower = [word.lower() for word in words]
    return [one for one in series if all(word in one.words for word in lower)]


class Side(NamedTuple):
    """One configuration in two results; `change` is the second time against the first."""

    configuration: str
    first: Spread | None
    second: Spread | None
    change: Change


def side_by_side(first: Result, second: Result) -> list[Side]:
    """All configurations of both, in the order of the first."""
    names = dict.fromkeys(row.variant for one in (first, second) for row in one.rows)
    return [
        Side(name, _spread(first.row(name)), _spread(second.row(name)), change(first, second, name))
        for name in names
    ]


def _spread(row: Row | None) -> Spread | None:
    return None if row is None else row.seconds


def answers(series: Series) -> list[str]:
    """In sentences: what is fastest, and whether it became slower."""
    fastest, state = series.fastest, series.results[-1].state
    out = [f"The newest benchmark {'' if state == FAILED else 'is '}{state}."] if state else []
    if fastest is None:
        return [*out, f"Nothing was measured on {series.device}."]
    row, name = fastest.row, fastest.row.variant
    first = f"Fastest on {series.device}: {name}, {seconds_text(seconds_of(row).median)} ({row.seconds_of})"
    if fastest.times is not None and fastest.baseline is not None:
        first += f", {fastest.times:.3g}× as fast as {fastest.baseline.variant}"
    out.insert(0, f"{first}.")
    if fastest.alike:
        out.append(f"Within noise of it: {'; '.join(fastest.alike)}.")
    out += [f"{option} was not applied: {why}." for option, why in row.unapplied.items()]
    quality = [
        f"{metric} {amount(old)} → {amount(new)}"
        for metric, (old, new) in row.quality.items()
        if new is not None and old != new
    ]
    if quality:
        out.append(f"Its results differ: {', '.join(quality)}.")
    before, start = series.than_before(name), series.since_first(name)
    if before is None or start is None:
        return [*out, "It was measured once."]
    out.append(f"Against {clock(before[0].at, '%Y-%m-%d')}, the time before: {before[1]}.")
    if start[0] is not before[0]:
        out.append(f"Against {clock(start[0].at, '%Y-%m-%d')}, the first time: {start[1]}.")
    return out


def between(first: Series, second: Series) -> str:
    """Which of two machines is faster, each with its own fastest configuration, in a sentence or two."""
    one, other = first.fastest, second.fastest
    names = names_apart(first, second)
    if one is None or other is None:
        return f"{names[one is not None]} measured nothing."
    spreads = seconds_of(one.row), seconds_of(other.row)
    each = "; ".join(
        f"{seconds_text(spread.median)} on {name} with {best.row.variant}"
        for spread, name, best in zip(spreads, names, (one, other), strict=True)
    )
    why = change(first.newest, second.newest, one.row.variant).why
    if why in (ANOTHER_JOB, ANOTHER_TIME):
        return f"Not comparable: {why}. Fastest: {each}."
    verdict = compared(*spreads, max(first.newest.noise, second.newest.noise))
    return f"{names[1]} against {names[0]}: {verdict}. Fastest: {each}."


def names_apart(first: Series, second: Series) -> tuple[str, str]:
    """The GPUs; where these are the same, with processors; of one machine the benchmarks' numbers."""
    for one, other in ((first.device, second.device), (first.hardware, second.hardware)):
        if one != other:
            return one, other
    return f"benchmark {first.newest.bench}", f"benchmark {second.newest.bench}"


def shared(known: Sequence[Series], one: Sequence[str], other: Sequence[str]) -> list[tuple[Series, Series]]:
    """Benchmarks that two kinds of machines measured, by words for each."""
    return [
        (a, b)
        for a in matching(known, one)
        for b in matching(known, other)
        if a.name == b.name and a.hardware != b.hardware
    ]
