"""Verdicts on claims: each claimed range beside what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast

from kgops.errors import KgopsError
from kgops.experiments.calculated_claims import CALCULATIONS, Calculation
from kgops.experiments.claim_register import Documented, register
from kgops.experiments.claims import TABLES, Judged, judge
from kgops.experiments.comparison import PairedComparison
from kgops.experiments.fingerprint import fingerprint
from kgops.experiments.predicted_claims import PREDICTED, Prediction
from kgops.experiments.verdicts import NO_VERDICT, Verdict, inside, of_gain, within
from kgops.jobs.job import read_job
from storage import benches, measurements
from storage.benches import Bench
from storage.database import Connection
from storage.measurements import Measurement

CHECKS = "e"  # name of the checks in `--only`


def check(conn: Connection, command: str, *, quick: bool) -> None:
    words = [sys.executable, "-P", "-m", "kgops.trials.checks", *(["--quick"] if quick else [])]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise KgopsError(
            f"the claim checks failed with exit code {done.returncode}: {last}",
            f"`{' '.join(words[1:])}` with this Python shows all of its output",
        )
    machine, at = fingerprint(), time.time()
    values = [
        Measurement(
            name=CHECKED + one["name"],
            subject=one["subject"],
            against=None,
            value=one["value"],
            low=one["low"],
            high=one["high"],
            n=one["n"],
            unit=one["unit"],
            command=command,
            fingerprint=machine,
            at=at,
        )
        for one in json.loads(done.stdout)
    ]
    measurements.add_all(conn, values)


_TRAINING = (
    *("fp32", "fp32 again", "+ fp16", "+ bf16", "+ checkpointing", "+ fp16 + checkpointing", "+ compile"),
    "kgops",
)
_TRACIN = (
    *("baseline", "baseline again", "+ fp16", "+ bf16", "+ checkpointing", "+ last layers"),
    *("+ test caching", "+ vmap", "+ compile", "+ filtering", "all that is exact", "kgops"),
)
_REGRESSION = (
    *("original", "original again", "+ checkpointing", "+ compile", "+ checkpointing + compile"),
    "small model",
)
_LOSS = ("dense labels", "dense labels again", "their efficient loss", "kgops")


class _Repeats(NamedTuple):
    """Runs of the command, trials of each variant in a run, timings in a trial: as many pairs as their product."""

    runs: int
    trials: int
    parts: int


# Quick: all tables take less than three minutes. In full tables one timing takes seconds, not hundredths.
_QUICK, _WHOLE = _Repeats(2, 2, 5), _Repeats(3, 2, 4)


def comparisons(table: str, *, quick: bool, data: Path | None) -> list[PairedComparison]:
    """The paired comparisons of a claim table."""
    repeats = _QUICK if quick else _WHOLE
    given = [] if data is None else ["--data", str(data.absolute())]
    label = " (quick)" if quick else ""
    on = "" if data is None else f" on {data.absolute().name}"
    if table == "a":
        small = ["--entities", "3000", "--dim", "64", "--steps", "2"]
        words = [*given, *(small if quick else ["--compile"])]
        return [
            _comparison(
                f"claims a{label}: training ConvE{on}, batch {batch}",
                "training",
                [*words, "--batch-size", str(batch)],
                _TRAINING,
                repeats,
            )
            for batch in ((256,) if quick else (256, 1024))
        ]
    if table == "b":
        small = ["--entities", "6400", "--dim", "32", "--triples", "128", "--training", "30"]
        words = [*given, *(small if quick else ["--compile"])]
        name = f"claims b{label}: TracIn{on}, one test triple"
        return [_comparison(name, "tracin", words, _TRACIN, repeats)]
    if table == "c":
        sizes = [(256, 10_000)] if quick else [(256, 10_000), (1024, 10_000), (256, 50_000), (1024, 50_000)]
        return [_loss(label, batch, entities, repeats) for batch, entities in sizes]
    words = ["--size", "32", "--batch-size", "4"] if quick else ["--compile"]
    name = f"claims d{label}: the regression network, windows of 5 frames"
    return [_comparison(name, "regression", words, _REGRESSION, repeats)]


def _loss(label: str, batch: int, entities: int, repeats: _Repeats) -> PairedComparison:
    words = ["--entities", str(entities), "--batch-size", str(batch)]
    name = f"claims c{label}: batch {batch} × {entities:,} entities"
    return _comparison(name, "loss", words, _LOSS, repeats)


def _comparison(
    name: str, module: str, words: Sequence[str], variants: Sequence[str], repeats: _Repeats
) -> PairedComparison:
    """Several trials in each run, since loading libraries takes longer than a trial, and several timings in each trial,
    since the quartiles of a few pairs are unstable."""
    command = [sys.executable, "-P", "-m", f"kgops.trials.{module}", *words]
    command += ["--trials", str(repeats.trials), "--repetitions", str(repeats.parts), "--round", "{round}"]
    job = read_job({"workload": "exec", "exec": {"command": command}}, name)
    pairs = repeats.trials * repeats.parts
    return PairedComparison(
        name, dict.fromkeys(variants, job), repeats.runs * pairs, together=True, trials=pairs
    )


Basis = Literal["measured", "arithmetic", "data sheet", "package", "prediction", "documentation", "none"]
CHECKED = "claim "  # prefix of the names of values that check a claim


@dataclass(frozen=True)
class Ruling:
    """A claim's verdict: its `basis`, the value found and the reason; `bench` and `machine` if it was measured."""

    claim: Documented
    verdict: Verdict
    found: str
    why: str
    basis: Basis
    bench: int | None = None
    machine: str | None = None


def rulings(conn: Connection, machine: str | None = None) -> list[Ruling]:
    """Verdicts in the register's order, from measurements on `machine`; None: the newest machine of each table."""
    judged = {
        table: (bench, judge(conn, bench, list(register().values())))
        for table, bench in chosen(conn, machine).items()
    }
    checked = _checked(conn, machine)
    return [_ruling(claim, judged, checked) for claim in register().values()]


def chosen(conn: Connection, machine: str | None = None) -> dict[str, Bench]:
    """The newest full benchmark of each table, or the newest quick one if there is no full one."""
    newest: dict[str, Bench] = {}
    for table in TABLES:
        candidates = [
            bench
            for bench in benches.newest(conn, limit=1000)
            if bench.ended_at is not None and bench.name.startswith(f"claims {table}")
        ]
        if machine is not None:
            candidates = [bench for bench in candidates if bench.fingerprint == machine]
        if candidates:
            key = candidates[0].fingerprint
            newest[table] = min(
                (bench for bench in candidates if bench.fingerprint == key),
                key=lambda bench: "(quick)" in bench.name,
            )
    return newest


def on_value(claim: Documented, value: float) -> tuple[Verdict, str]:
    """Verdict on a single value against the claim, or against our `bound` if the claim states no number."""
    if claim.bound:
        return inside(value, claim.bound.get("at_least"), claim.bound.get("at_most"))
    if claim.sense == "most":
        return inside(value, None, claim.high)
    if claim.sense == "gain" and claim.low is not None:
        return of_gain(value, claim.low, claim.high)
    return within(value, claim.low, claim.high, about=claim.about)


def _ruling(
    claim: Documented,
    judged: Mapping[str, tuple[Bench, Sequence[Judged]]],
    checked: Mapping[str, Measurement],
) -> Ruling:
    measured = _by_table(claim, judged) if claim.table else None
    if measured is not None and measured.verdict not in NO_VERDICT:
        return measured
    if claim.check is not None:
        return _by_check(claim, checked)
    if claim.reckon:
        return _by_calculation(claim)
    if claim.documented is not None:
        verdict = cast(Verdict, claim.documented)
        return Ruling(claim, verdict, claim.source or "", "", "documentation")
    if measured is not None:
        return measured
    if claim.reason is not None:
        return Ruling(claim, "cannot be tested here", "", claim.reason, "none")
    return _not_yet(claim, claim.table)


def _not_yet(claim: Documented, only: str) -> Ruling:
    return Ruling(claim, "not measured yet", "", f"kgops bench claims --only {only} measures it", "none")


def _by_table(claim: Documented, judged: Mapping[str, tuple[Bench, Sequence[Judged]]]) -> Ruling | None:
    if claim.table not in judged:
        return None
    bench, rows = judged[claim.table]
    one = next((row for row in rows if row.claimed is not None and row.claimed.name == claim.name), None)
    if one is None:
        return None
    if one.verdict in NO_VERDICT:
        return Ruling(claim, one.verdict, "", one.why, "none", bench.id, bench.fingerprint)
    of = {"speed": "speed", "memory": "less memory"}.get(claim.quantity, "")
    measured = f"{of} {one.measured}".strip()
    return Ruling(claim, one.verdict, measured, one.why, "measured", bench.id, bench.fingerprint)


def _by_check(claim: Documented, checked: Mapping[str, Measurement]) -> Ruling:
    metric = checked.get(claim.check or "")
    if metric is None:
        return _not_yet(claim, CHECKS)
    verdict, why = on_value(claim, metric.value)
    return Ruling(claim, verdict, metric.subject, why, "measured", None, metric.machine)


def _by_calculation(claim: Documented) -> Ruling:
    name, *given = claim.reckon
    if name in PREDICTED:
        return _by_prediction(claim, PREDICTED[name](*given))
    calculated: Calculation = CALCULATIONS[name](*given)
    if calculated.value is None:
        return Ruling(claim, "cannot be tested here", "", calculated.working, "none")
    verdict, why = on_value(claim, calculated.value)
    return Ruling(claim, verdict, calculated.working, why, cast(Basis, calculated.basis))


def _by_prediction(claim: Documented, predicted: Prediction) -> Ruling:
    """The verdict, if the claim holds over the whole range of what is assumed, or nowhere: then the mildest."""
    judged = [on_value(claim, value) for value in predicted.values]
    held = [verdict == "confirmed" for verdict, _ in judged]
    if any(held) and not all(held):
        why = f"holds only in a part of what is assumed: {predicted.text}"
        return Ruling(claim, "cannot be tested here", "", why, "none")
    verdict, why = judged[-1]
    return Ruling(claim, verdict, predicted.text, why, "prediction")


def _checked(conn: Connection, machine: str | None) -> dict[str, Measurement]:
    """Newest value of each check."""
    newest: dict[str, Measurement] = {}
    for name in {claim.check for claim in register().values() if claim.check is not None}:
        values = [m for m in measurements.named(conn, CHECKED + name) if machine in (None, m.machine)]
        if values:
            newest[name] = values[-1]
    return newest
