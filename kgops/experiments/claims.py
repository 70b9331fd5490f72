"""Which options pay here: what `kgops bench claims` measured, beside what the scripts' documents claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from kgops.experiments.documented import DOCUMENT_TABLES, OPTIONS, PART_OF_OPTIONS, TABLES, Option, Row
from kgops.experiments.summary import (
    FEWEST,
    NO_VERDICT,
    NOTHING,
    Noise,
    Verdict,
    absolute,
    effect_of,
    is_control,
    middle,
    noise_of,
    noises,
)
from kgops.experiments.trial_result import Spread, metric_ratios, ratios, spread_of, troubles
from kgops.jobs.numbers import median
from kgops.workloads.registry import LEFT_OUT
from storage import benches
from storage.benches import Bench, Pair
from storage.database import Connection

Answer = Literal[
    "use",
    "use if memory is short",
    "use if memory allows",
    "changes results",
    "do not use",
    "not measured",
]
NOT_YET = "not yet"
ANSWERS: tuple[Answer, ...] = (
    *("use", "use if memory is short", "use if memory allows", "changes results", "do not use"),
    "not measured",
)
CLAIMS = "claims "  # prefix of the names of these benchmarks
_ROUNDING = 0.01  # of the largest score or of the loss; a larger difference is a changed result


@dataclass(frozen=True)
class Measured:
    """An option or a row of a document's table. Ratios above 1: faster, or less memory. `seconds` and `mib` are
    medians. `why` is one word, where it was not measured, and `reason` says it in full."""

    name: str
    claim: str
    variant: str
    speed: Spread | None = None
    memory: Spread | None = None
    seconds: float | None = None
    mib: float | None = None
    results: str = ""
    why: str = ""
    reason: str = ""
    bench: int | None = None
    answer: Answer | None = None  # of an option


@dataclass(frozen=True)
class Table:
    """A table of `kgops bench claims`: its options, the baseline, and the deviation that counts as no effect."""

    letter: str
    title: str
    options: tuple[Measured, ...]
    machine: str | None  # None: not measured
    baseline: str = ""
    noise: float = NOTHING
    is_quick: bool = False


@dataclass(frozen=True)
class DocumentRows:
    title: str
    unit: str
    rows: tuple[Measured, ...]


@dataclass(frozen=True)
class Page:
    tables: tuple[Table, ...]
    documents: tuple[DocumentRows, ...]

    @property
    def machines(self) -> list[str]:
        return [*dict.fromkeys(one.machine for one in self.tables if one.machine)]

    @property
    def missing(self) -> list[str]:
        return [one.letter for one in self.tables if one.machine is None]

    def as_table(self) -> dict[str, Any]:
        return {"machine": self.machines, **asdict(self)}


@dataclass(frozen=True)
class _Measurements:
    """A benchmark of a table, with its pairs."""

    bench: Bench
    pairs: Sequence[Pair]

    @property
    def baseline(self) -> str:
        return str(self.bench.plan["variants"][0]["name"])

    def of(self, variant: str, over: str = "") -> list[Pair]:
        """The variant's pairs, with the baseline or with another variant of the same round."""
        own = [pair for pair in self.pairs if pair.variant == variant]
        if not over:
            return own
        others = {pair.round: pair.measured for pair in self.pairs if pair.variant == over}
        return [replace(pair, baseline=others[pair.round]) for pair in own if pair.round in others]


def page(conn: Connection) -> Page:
    """From the newest machine of each table; there a full benchmark comes before a quick one."""
    newest = _newest(conn)
    tables = []
    for letter, title in TABLES.items():
        options = [one for one in OPTIONS if one.table == letter]
        one = _find(newest, letter, PART_OF_OPTIONS.get(letter, ""))
        measured = [_option(option, one) for option in options]
        measured.sort(key=lambda line: ANSWERS.index(line.answer or "not measured"))
        if one is None:
            tables.append(Table(letter, title, tuple(measured), None))
            continue
        noise = noises(one.pairs, one.baseline)["speed"]
        quick = "(quick)" in one.bench.name
        tables.append(Table(letter, title, tuple(measured), _machine(conn, one), one.baseline, noise, quick))
    documents = [
        DocumentRows(
            table.title,
            table.unit,
            tuple(_row(row, _find(newest, table.table, row.part)) for row in table.rows),
        )
        for table in DOCUMENT_TABLES
    ]
    return Page(tuple(tables), tuple(documents))


def _newest(conn: Connection) -> list[_Measurements]:
    """The ended benchmarks of the newest machine of each table, full ones first."""
    ended = [
        bench
        for bench in benches.newest(conn, limit=1000)
        if bench.ended_at is not None and bench.name.startswith(CLAIMS)
    ]
    machines: dict[str, str] = {}
    for bench in ended:
        machines.setdefault(_letter(bench), bench.fingerprint)
    own = [bench for bench in ended if machines[_letter(bench)] == bench.fingerprint]
    own.sort(key=lambda bench: "(quick)" in bench.name)
    return [_Measurements(bench, benches.pairs(conn, bench.id)) for bench in own]


def _letter(bench: Bench) -> str:
    return bench.name.removeprefix(CLAIMS)[:1]


def _find(newest: Sequence[_Measurements], letter: str, part: str = "") -> _Measurements | None:
    return next((one for one in newest if _letter(one.bench) == letter and part in one.bench.name), None)


def _machine(conn: Connection, one: _Measurements) -> str:
    """The name of the GPU that the variants ran on, or of the CPU."""
    body = benches.fingerprint(conn, one.bench.fingerprint)
    gpus, machine = body.get("gpus") or [{}], body.get("machine") or {}
    if any(pair.baseline.get("on_gpu") for pair in one.pairs):
        return str(gpus[0].get("name") or "GPU")
    return f"{machine.get('processor') or 'unknown CPU'}, {machine.get('cores') or '?'} cores (CPU)"


# --- a line ---


def _row(row: Row, one: _Measurements | None) -> Measured:
    line = Measured(row.name, row.claim, row.variant, why=row.why)
    if row.why or one is None:
        return line if row.why else replace(line, why=NOT_YET)
    if row.variant == one.baseline:
        trials = [pair.baseline for pair in one.pairs]
        failed = all(trial.get("trouble") for trial in trials)
        return _with_amounts(replace(line, bench=one.bench.id, why="failed" if failed else ""), trials)
    return _measured(line, one, one.of(row.variant, row.over))


def _option(option: Option, one: _Measurements | None) -> Measured:
    line = Measured(option.name, option.claim, option.variant, why=option.why, answer="not measured")
    if option.why or one is None:
        return line if option.why else replace(line, why=NOT_YET)
    pairs = one.of(option.variant)
    line = _measured(line, one, pairs)
    if line.why:
        return line
    reserved = spread_of(metric_ratios(pairs, "resident_mib"))
    controls = [pair for pair in one.pairs if is_control(pair.variant, one.baseline)]
    noise = noises(one.pairs, one.baseline)
    of_reserved = noise_of(spread_of(metric_ratios(controls, "resident_mib")))
    if option.reserved and reserved is not None:
        line, noise = replace(line, memory=reserved), {**noise, "memory": of_reserved}
    larger = effect_of(reserved, of_reserved)[0] == "harmful"
    return _answered(line, noise, changes=_changes(pairs), larger=larger)


def _measured(line: Measured, one: _Measurements, pairs: Sequence[Pair]) -> Measured:
    speed, memory = spread_of(ratios(pairs, "speed")), spread_of(ratios(pairs, "memory"))
    line = replace(line, bench=one.bench.id)
    if speed is None:
        reason = next(iter(troubles(pairs)), "")
        return replace(line, why=_word(reason), reason=reason)
    if speed.n < FEWEST:
        return replace(line, why="too few", reason=f"{speed.n} of at least {FEWEST} pairs")
    line = replace(line, speed=speed, memory=memory, results=_results(pairs))
    return _with_amounts(line, [pair.measured for pair in pairs])


def _with_amounts(line: Measured, trials: Sequence[dict[str, Any]]) -> Measured:
    """Median seconds and MiB."""
    spreads = (absolute(trials, key)[0] for key in ("seconds", "memory_mib"))
    seconds, mib = (None if one is None else one.median for one in spreads)
    return replace(line, seconds=seconds, mib=mib)


def _word(trouble: str) -> str:
    if not trouble:
        return "not yet"
    if LEFT_OUT in trouble:
        return "quick"
    return "GPU" if trouble.startswith("no CUDA device") else "failed"


# --- the answer ---


def _answered(line: Measured, noise: Noise, *, changes: bool, larger: bool) -> Measured:
    """`larger`: the process takes more memory."""
    speed, memory = effect_of(line.speed, noise["speed"])[0], effect_of(line.memory, noise["memory"])[0]
    effects: list[Verdict] = [speed] if line.memory is None else [speed, memory]
    if "effective" not in effects:
        if any(one in NO_VERDICT for one in effects):
            return replace(line, why="noise", reason="the machine was too noisy for an answer")
        return replace(line, answer="do not use")
    if changes:
        return replace(line, answer="changes results")
    # A median cost within the noise still counts: it is what a user gets.
    slower = speed == "harmful" or (line.speed is not None and line.speed.median < 1 - NOTHING)
    costs = memory == "harmful" or (line.memory is not None and line.memory.median < 1 - NOTHING)
    costs |= larger and memory != "effective"
    if slower:
        return replace(line, answer="use if memory is short")
    return replace(line, answer="use if memory allows" if costs else "use")


def _changes(pairs: Sequence[Pair]) -> bool:
    error, change = _score_error(pairs), _loss_change(pairs)
    return (error or 0.0) > _ROUNDING or abs(change or 0.0) > _ROUNDING


def _results(pairs: Sequence[Pair]) -> str:
    error, change = _score_error(pairs), _loss_change(pairs)
    if error is not None:
        top = middle((pair.measured for pair in pairs), "top_50_shared")
        shared = f", top 50 {top:.0%}" if top is not None and error > _ROUNDING else ""
        size = f"{error:.0%}" if error > _ROUNDING else f"{error:.2%}"
        return "same scores" if error < 1e-4 else f"scores ±{size}{shared}"
    if change is not None:
        return "same loss" if abs(change) < 1e-3 else f"loss {change:+.1%}"
    return ""


def _score_error(pairs: Sequence[Pair]) -> float | None:
    return middle((pair.measured for pair in pairs), "score_error")


def _loss_change(pairs: Sequence[Pair]) -> float | None:
    """The loss's difference to the baseline's, as a share of it."""
    both = [(_metrics(pair.baseline).get("loss"), _metrics(pair.measured).get("loss")) for pair in pairs]
    known = [(before, after) for before, after in both if before and after is not None]
    return median([(after - before) / abs(before) for before, after in known]) if known else None


def _metrics(trial: dict[str, Any]) -> dict[str, float]:
    return trial.get("metrics") or {}
