"""Summary of a benchmark's pairs: one row per variant, and the measurements to store."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kgops.experiments.trial_result import Spread, alike, ratios, spread_of, troubles
from kgops.experiments.verdicts import Noise, Verdict, is_control, noises, of_both, of_trouble, steadiness
from kgops.jobs.numbers import median
from storage import benches, measurements
from storage.benches import Bench, Pair
from storage.database import Connection
from storage.measurements import Measurement

# Metrics of result quality, most important first.
QUALITY = (
    *("test_mrr", "valid_mrr", "loss"),
    *("precision_largest_error", "precision_top50", "last_layers_largest_error", "last_layers_top50"),
    *("score_error", "rank_agreement", "top_50_shared"),
)


@dataclass(frozen=True)
class Row:
    """A variant against the baseline. Ratios above 1: faster, or less memory. `unapplied` has options that were
    requested and not applied, with the worker's reasons."""

    variant: str
    baseline: str
    speed: Spread | None
    memory: Spread | None
    seconds: Spread | None
    seconds_of: str
    memory_mib: Spread | None
    memory_of: str
    quality: dict[str, tuple[float | None, float | None]]  # medians of the baseline and of the variant
    unapplied: dict[str, str]
    troubles: tuple[str, ...]
    busy: float | None
    verdict: Verdict
    why: str


def rows(conn: Connection, bench: Bench) -> list[Row]:
    """The baseline's row first, then one row for each variant."""
    pairs = alike(benches.pairs(conn, bench.id))
    names = [one["name"] for one in bench.plan["variants"]]
    first, others = names[0], names[1:]
    noise = noises(pairs, first)
    return [
        _baseline(first, pairs),
        *(_row(name, first, [p for p in pairs if p.variant == name], noise) for name in others),
    ]


def _row(name: str, baseline: str, pairs: Sequence[Pair], noise: Noise) -> Row:
    speed, memory = spread_of(ratios(pairs, "speed")), spread_of(ratios(pairs, "memory"))
    trouble = troubles(pairs)
    verdict, why = steadiness(speed, memory) if is_control(name, baseline) else of_both(speed, memory, noise)
    off = _unapplied(pairs)
    if trouble and speed is None:
        verdict, why = of_trouble(trouble[0])
    measured = [pair.measured for pair in pairs]
    return Row(
        name,
        baseline,
        speed,
        memory,
        *_absolute(measured, "seconds"),
        *_absolute(measured, "memory_mib"),
        _quality(pairs),
        off,
        tuple(trouble),
        _busy(pairs),
        verdict,
        why,
    )


def _baseline(name: str, pairs: Sequence[Pair]) -> Row:
    """Each trial of the baseline counts once, though several pairs may share it."""
    trials = {(pair.round, pair.baseline_run): pair.baseline for pair in pairs}
    measured = list(trials.values())
    return Row(
        name,
        name,
        None,
        None,
        *_absolute(measured, "seconds"),
        *_absolute(measured, "memory_mib"),
        {},
        {},
        (),
        _busy(pairs),
        "baseline",
        "",
    )


def _absolute(measured: Iterable[dict[str, Any]], key: str) -> tuple[Spread | None, str]:
    known = [one for one in measured if one.get(key) is not None and not one.get("trouble")]
    of = {"seconds": "seconds_of", "memory_mib": "memory_of"}[key]
    return spread_of([one[key] for one in known]), known[-1][of] if known else ""


def _quality(pairs: Sequence[Pair]) -> dict[str, tuple[float | None, float | None]]:
    medians = {}
    for name in QUALITY:
        before = _middle([pair.baseline for pair in pairs], name)
        after = _middle([pair.measured for pair in pairs], name)
        if before is not None or after is not None:
            medians[name] = (before, after)
    return medians


def _middle(measured: Iterable[dict[str, Any]], name: str) -> float | None:
    metrics = [(one.get("metrics") or {}).get(name) for one in measured]
    values = [value for value in metrics if value is not None]
    return median(values) if values else None


def _unapplied(pairs: Sequence[Pair]) -> dict[str, str]:
    """Options that differ from the baseline's and were not applied, with the reasons."""
    reasons = {}
    for pair in pairs:
        before = pair.baseline.get("options") or {}
        for name, option in (pair.measured.get("options") or {}).items():
            requested = option["requested"]
            if (
                requested != (before.get(name) or {}).get("requested")
                and requested != option["applied"]
                and requested != "auto"
            ):
                reasons[name] = option["why"] or f"{option['applied']} applied"
    return reasons


def _busy(pairs: Sequence[Pair]) -> float | None:
    known = [pair.busy for pair in pairs if pair.busy is not None]
    return median(known) if known else None


def as_measurements(conn: Connection, bench: Bench) -> list[Measurement]:
    machine = measurements.fingerprint(conn, bench.fingerprint)
    values = []
    for row in rows(conn, bench):
        for name, spread, unit, against in (
            ("speed", row.speed, "×", row.baseline),
            ("memory", row.memory, "×", row.baseline),
            ("seconds", row.seconds, "s", None),
            ("memory_mib", row.memory_mib, "MiB", None),
        ):
            if spread is not None:
                values.append(
                    _measurement(bench, machine, f"{bench.name}: {name}", row.variant, against, spread, unit)
                )
    return values


def _measurement(
    bench: Bench,
    machine: dict[str, Any],
    name: str,
    subject: str,
    against: str | None,
    spread: Spread,
    unit: str,
) -> Measurement:
    return Measurement(
        name=name,
        subject=subject,
        against=against,
        value=spread.median,
        low=spread.low,
        high=spread.high,
        n=spread.n,
        unit=unit,
        command=bench.command,
        fingerprint=machine,
        at=bench.ended_at or time.time(),
        bench=bench.id,
    )
