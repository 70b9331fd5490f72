"""Verdicts on all claims of the register, from stored measurements, calculations, predictions and documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from kgops.experiments.calculated_claims import CALCULATIONS, Calculation
from kgops.experiments.claim_register import Documented, register
from kgops.experiments.claims import TABLES, Judged, judge
from kgops.experiments.predicted_claims import PREDICTED
from kgops.experiments.verdicts import Verdict, inside, of_gain, within
from storage import benches, measurements
from storage.benches import Bench
from storage.database import Connection
from storage.measurements import Measurement

__all__ = ["CHECKED", "Basis", "Ruling", "chosen", "on_value", "rulings"]

Basis = Literal[
    "measured", "arithmetic", "data sheet", "package", "prediction", "documentation", "pending", "none"
]
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
    if measured is not None and measured.verdict != "cannot be tested here":
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
    return _pending(claim, claim.table)


def _pending(claim: Documented, only: str) -> Ruling:
    why = f"not measured yet: kgops bench claims --only {only}"
    return Ruling(claim, "cannot be tested here", "", why, "pending")


def _by_table(claim: Documented, judged: Mapping[str, tuple[Bench, Sequence[Judged]]]) -> Ruling | None:
    if claim.table not in judged:
        return None
    bench, rows = judged[claim.table]
    one = next((row for row in rows if row.claimed is not None and row.claimed.name == claim.name), None)
    if one is None:
        return None
    if one.verdict == "cannot be tested here":
        return Ruling(claim, one.verdict, "", one.why, "none", bench.id, bench.fingerprint)
    of = {"speed": "speed", "memory": "less memory"}.get(claim.quantity, "")
    measured = f"{of} {one.measured}".strip()
    return Ruling(claim, one.verdict, measured, one.why, "measured", bench.id, bench.fingerprint)


def _by_check(claim: Documented, checked: Mapping[str, Measurement]) -> Ruling:
    metric = checked.get(claim.check or "")
    if metric is None:
        return _pending(claim, "e")
    verdict, why = on_value(claim, metric.value)
    return Ruling(claim, verdict, metric.subject, why, "measured", None, metric.machine)


def _by_calculation(claim: Documented) -> Ruling:
    name, *given = claim.reckon
    calculated: Calculation = {**CALCULATIONS, **PREDICTED}[name](*given)
    if calculated.value is None:
        return Ruling(claim, "cannot be tested here", "", calculated.working, "none")
    verdict, why = on_value(claim, calculated.value)
    factor = f"{calculated.value:,.2f}×: " if name == "predicted_less" else ""
    return Ruling(claim, verdict, f"{factor}{calculated.working}", why, cast(Basis, calculated.basis))


def _checked(conn: Connection, machine: str | None) -> dict[str, Measurement]:
    """Newest value of each check."""
    newest: dict[str, Measurement] = {}
    for name in {claim.check for claim in register().values() if claim.check is not None}:
        values = [m for m in measurements.named(conn, CHECKED + name) if machine in (None, m.machine)]
        if values:
            newest[name] = values[-1]
    return newest
