"""Claims beside measurements: a verdict on each figure that the group wrote down, from the pairs of its table."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgops.jobs.numbers import median, quotient
from kgops.measured.pairs import Spread, ratios, spread_of, troubles
from kgops.measured.verdicts import (
    FEWEST,
    Noise,
    Verdict,
    against_claim,
    effect_of,
    is_control,
    noises,
    of_both,
    steadiness,
)
from storage import benches
from storage.benches import Bench, Pair
from storage.claims import Claim
from storage.database import Connection

__all__ = ["TABLES", "Held", "Judged", "judge", "less_memory", "quality", "shipped"]

TABLES = {
    "a": "training ConvE",
    "b": "TracIn",
    "c": "the loss over all entities",
    "d": "the regression network",
}
_UNITS = {"score_error": "of the largest score", "cost": "", "impossible": ""}


@dataclass(frozen=True)
class Held:
    """A claim, and which row and quantity of which table it is held against."""

    claim: Claim
    table: str
    variant: str
    quantity: str


@dataclass(frozen=True)
class Judged:
    """A row of a table: what was claimed of a variant, if anything, and what was measured here."""

    variant: str
    held: Held | None
    measured: str
    ratio: Spread | None  # that the verdict is about; None where it is about something else
    n: int
    speed: Spread | None
    memory: Spread | None
    resident: Spread | None  # of the process; its ratios differ more from one command to the next
    quality: dict[str, float]
    effective: bool
    verdict: Verdict
    why: str


def shipped() -> list[Held]:
    table = tomllib.loads((Path(__file__).parent / "claims.toml").read_text("utf-8"))
    return [
        Held(
            Claim(
                name=one["name"],
                said_by=one["said_by"],
                source=one["source"],
                text=one["text"],
                low=one.get("low"),
                high=one.get("high"),
                unit=_UNITS.get(one["quantity"], "×"),
            ),
            *(one["table"], one["variant"], one["quantity"]),
        )
        for one in table["claim"]
    ]


def judge(conn: Connection, bench: Bench, held: Sequence[Held]) -> list[Judged]:
    """Every variant of the benchmark, with each claim on it or without any."""
    table = bench.name.removeprefix("claims ")[:1]
    pairs = benches.pairs(conn, bench.id)
    baseline, *others = [one["name"] for one in bench.plan["variants"]]
    noise = noises(pairs, baseline)
    found: list[Judged] = []
    for name in others:
        own = [pair for pair in pairs if pair.variant == name]
        if is_control(name, baseline):
            found.append(_judged(name, None, own, None))
            continue
        claims = [one for one in held if one.table == table and one.variant == name]
        found += [_judged(name, one, own, noise) for one in claims] or [_judged(name, None, own, noise)]
    return found


def less_memory(one: Judged) -> str:
    """What was counted, and what the whole process had of it."""
    if one.memory is None:
        return ""
    resident = f" (resident {_times(one.resident.median)})" if one.resident else ""
    return f"{_times(one.memory.median)}{resident}"


def quality(one: Judged) -> str:
    """What the lever does to the result."""
    told = []
    found = one.quality
    if "score_error" in found:
        told.append(f"scores ±{found['score_error']:.2g}, ranks {found['rank_agreement']:.3f}")
    if "top_50_shared" in found:
        told.append(f"top 50 {found['top_50_shared']:.0%}")
    if "loss_difference" in found:
        told.append(f"loss {found['loss_difference']:+.2g}")
    return ", ".join(told)


def _judged(name: str, held: Held | None, pairs: Sequence[Pair], noise: Noise | None) -> Judged:
    speed, memory = spread_of(ratios(pairs, "speed")), spread_of(ratios(pairs, "memory"))
    trouble = troubles(pairs)
    ratio = _ratio(held, pairs, speed, memory)
    measured, n, verdict, why = _verdict(held, pairs, speed, memory, ratio, noise)
    if trouble and speed is None and (held is None or held.quantity != "impossible"):
        measured, n, verdict, why = "", 0, "cannot be tested here", trouble[0]
    remark = next((pair.measured["remark"] for pair in pairs if pair.measured.get("remark")), None)
    return Judged(
        name,
        held,
        measured,
        ratio,
        n,
        speed,
        memory,
        spread_of(_figure_ratios(pairs, "resident_mib")),
        dict(_quality(pairs)),
        speed is not None,
        verdict,
        "; ".join(filter(None, (why, remark))),
    )


def _ratio(
    held: Held | None, pairs: Sequence[Pair], speed: Spread | None, memory: Spread | None
) -> Spread | None:
    """What is held against the claim: of speed where nothing was claimed."""
    if held is None or held.quantity in ("speed", "cost"):
        return speed
    if held.quantity == "labels":
        return spread_of(_figure_ratios(pairs, "labels_mib"))
    return memory if held.quantity == "memory" else None


def _verdict(
    held: Held | None,
    pairs: Sequence[Pair],
    speed: Spread | None,
    memory: Spread | None,
    ratio: Spread | None,
    noise: Noise | None,
) -> tuple[str, int, Verdict, str]:
    """Without noise it is the control, which nothing is to be held against."""
    n = ratio.n if ratio else 0
    if noise is None:
        return _shown(ratio), n, *steadiness(speed, memory)
    if held is None:
        return _shown(ratio), n, *of_both(speed, memory, noise)
    if held.quantity == "score_error":
        return _error_verdict(held, pairs)
    if held.quantity == "impossible":
        ran = sum(not pair.measured.get("trouble") for pair in pairs)
        return ("they run" if ran else "they failed"), len(pairs), "refuted" if ran else "confirmed", ""
    if held.quantity == "cost":
        verdict, why = effect_of(ratio, noise["speed"])
        good = verdict in ("no effect", "effective")
        return f"{_shown(ratio)} speed", n, "confirmed" if good else verdict, why
    nothing = noise["speed" if held.quantity == "speed" else "memory"]
    return _shown(ratio), n, *against_claim(ratio, held.claim.low, nothing)


def _error_verdict(held: Held, pairs: Sequence[Pair]) -> tuple[str, int, Verdict, str]:
    values = [
        pair.measured["figures"][held.quantity] for pair in pairs if held.quantity in pair.measured["figures"]
    ]
    found, most = spread_of(values), held.claim.high
    if found is None or found.n < FEWEST or most is None:
        return "", len(values), "cannot be tested here", f"{len(values)} of at least {FEWEST} runs"
    return f"{found.median:.2%}", found.n, "confirmed" if found.high <= most else "harmful", ""


def _figure_ratios(pairs: Sequence[Pair], name: str) -> list[float]:
    both = [
        ((pair.baseline.get("figures") or {}).get(name), (pair.measured.get("figures") or {}).get(name))
        for pair in pairs
    ]
    return [found for a, b in both if a and b and (found := quotient(a, b))]


def _quality(pairs: Sequence[Pair]) -> Iterator[tuple[str, float]]:
    """Medians of what says how good the result is; for a loss, the difference to the baseline's."""
    tables: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (pair.baseline.get("figures") or {}, pair.measured.get("figures") or {}) for pair in pairs
    ]
    for name in ("score_error", "rank_agreement", "top_50_shared"):
        values = [after[name] for _, after in tables if name in after]
        if values:
            yield name, median(values)
    losses = [
        after["loss"] - before["loss"] for before, after in tables if "loss" in before and "loss" in after
    ]
    if losses:
        yield "loss_difference", median(losses)


def _shown(found: Spread | None) -> str:
    if found is None:
        return ""
    return f"{_times(found.median)} ({_times(found.low)}–{_times(found.high)})"


def _times(value: float) -> str:
    return f"{value:,.0f}×" if value >= 100 else f"{value:.2f}×"
