"""Claims against measurements: a verdict on each claim that a `kgops bench claims` table measures, from its pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kgops.experiments.claim_register import Documented, register
from kgops.experiments.trial_result import Quantity, Spread, ratios, spread_of, troubles
from kgops.experiments.verdicts import (
    FEWEST,
    NEAR,
    NO_VERDICT,
    Noise,
    Verdict,
    against_claim,
    against_cost,
    effect_of,
    inside,
    is_control,
    noises,
    of_both,
    of_trouble,
    steadiness,
    within,
)
from kgops.jobs.numbers import median, quotient
from storage import benches
from storage.benches import Bench, Pair
from storage.database import Connection

TABLES = {
    "a": "training ConvE",
    "b": "TracIn",
    "c": "the loss over all entities",
    "d": "the regression network",
}


_SHOWN = {
    "score_error": "{:.2%} of the largest score",
    "rank_agreement": "rank agreement {:.3f}",
    "reduction": "{:,.0f} times fewer triples",
    "labels_share": "{:.0%} of the memory of a step",
    "loss_difference": "loss differs by {:.2g}",
}


@dataclass(frozen=True)
class Judged:
    """A row of a claim table: the claim on a variant, if there is one, and the values measured here."""

    variant: str
    claimed: Documented | None
    measured: str
    ratio: Spread | None  # behind the verdict; None if the verdict is about another quantity
    n: int
    speed: Spread | None
    memory: Spread | None
    resident: Spread | None  # memory of the process; its ratios vary more between commands
    quality: dict[str, float]
    applied: bool
    verdict: Verdict
    why: str
    remark: str = ""  # on the variant, independent of the claim


def shipped() -> list[Documented]:
    """All claims of the register; `judge` uses those of its table."""
    return list(register().values())


def judge(conn: Connection, bench: Bench, documented: Sequence[Documented]) -> list[Judged]:
    """One row for each claim on each variant of the benchmark, or one row for a variant without a claim."""
    table = bench.name.removeprefix("claims ")[:1]
    pairs = benches.pairs(conn, bench.id)
    baseline, *others = [one["name"] for one in bench.plan["variants"]]
    noise = noises(pairs, baseline)
    judged: list[Judged] = []
    for name in others:
        own = [pair for pair in pairs if pair.variant == name]
        if is_control(name, baseline):
            judged.append(_judged(name, None, own, None))
            continue
        claims = [one for one in documented if one.table == table and one.variant == name]
        judged += [_judged(name, one, own, noise, _beside(one, own, pairs)) for one in claims] or [
            _judged(name, None, own, noise)
        ]
    return judged


def less_memory(one: Judged) -> str:
    """Memory ratio of the counted tensors, and of the resident process."""
    if one.memory is None:
        return ""
    resident = f" (resident {_times(one.resident.median)})" if one.resident else ""
    return f"{_times(one.memory.median)}{resident}"


def quality(one: Judged) -> str:
    """Effect of the option on the result."""
    texts = []
    values = one.quality
    if "score_error" in values:
        texts.append(f"scores ±{values['score_error']:.2g}, ranks {values['rank_agreement']:.3f}")
    if "top_50_shared" in values:
        texts.append(f"top 50 {values['top_50_shared']:.0%}")
    if "loss_difference" in values:
        texts.append(f"loss {values['loss_difference']:+.2g}")
    return ", ".join(texts)


def _judged(
    name: str,
    claim: Documented | None,
    pairs: Sequence[Pair],
    noise: Noise | None,
    beside: Sequence[Pair] | None = None,
) -> Judged:
    """`beside` are the pairs that the claim is about, if it is not a claim against the baseline."""
    about = pairs if beside is None else beside
    speed, memory = spread_of(ratios(pairs, "speed")), spread_of(ratios(pairs, "memory"))
    trouble = troubles(pairs)
    ratio = _ratio(claim, about)
    measured, n, verdict, why = _verdict(claim, about, speed, memory, ratio, noise)
    if trouble and speed is None and (claim is None or claim.quantity != "impossible"):
        measured, n, (verdict, why) = "", 0, of_trouble(trouble[0])
    remark = next((pair.measured["remark"] for pair in pairs if pair.measured.get("remark")), None)
    return Judged(
        name,
        claim,
        measured,
        ratio,
        n,
        speed,
        memory,
        spread_of(_metric_ratios(pairs, "resident_mib")),
        dict(_quality(pairs)),
        speed is not None,
        verdict,
        why,
        remark or "",
    )


def _beside(claim: Documented, own: Sequence[Pair], pairs: Sequence[Pair]) -> list[Pair] | None:
    """Pairs with the variant `claim.over` instead of the baseline; None if the claim has no `over`."""
    if claim.over is None:
        return None
    others = {pair.round: pair.measured for pair in pairs if pair.variant == claim.over}
    return [replace(pair, baseline=others[pair.round]) for pair in own if pair.round in others]


def _ratio(claim: Documented | None, pairs: Sequence[Pair]) -> Spread | None:
    """The ratio compared with the claim; speed if nothing was claimed."""
    if claim is None or claim.quantity == "speed":
        return spread_of(ratios(pairs, "speed"))
    return spread_of(ratios(pairs, "memory")) if claim.quantity == "memory" else None


def _verdict(
    claim: Documented | None,
    pairs: Sequence[Pair],
    speed: Spread | None,
    memory: Spread | None,
    ratio: Spread | None,
    noise: Noise | None,
) -> tuple[str, int, Verdict, str]:
    """`noise` is None for the control, which has no claims."""
    n = ratio.n if ratio else 0
    if noise is None:
        return _shown(ratio), n, *steadiness(speed, memory)
    if claim is None:
        return _shown(ratio), n, *of_both(speed, memory, noise)
    if claim.quantity == "impossible":
        ran = sum(not pair.measured.get("trouble") for pair in pairs)
        return ("they run" if ran else "they failed"), len(pairs), "refuted" if ran else "confirmed", ""
    if claim.quantity not in ("speed", "memory"):
        return _of_metric(claim, pairs)
    for condition, claimed in claim.near.items():
        far = _far_from(condition, claimed, pairs)
        if far is not None:
            return "", 0, "cannot be tested here", far
    quantity: Quantity = "speed" if claim.quantity == "speed" else "memory"
    return _shown(ratio), n, *_of_ratio(claim, ratio, noise[quantity])


def _far_from(condition: str, claimed: float, pairs: Sequence[Pair]) -> str | None:
    """Why what was measured is not the claim's case; None if it is."""
    values = _metrics_of(condition, pairs)
    if not values:
        return None
    here = median(values)
    if claimed / NEAR <= here <= claimed * NEAR:
        return None
    return f"here {_SHOWN[condition].format(here)}, in the claim {claimed:,g}"


def _of_ratio(claim: Documented, ratio: Spread | None, nothing: float) -> tuple[Verdict, str]:
    effect, why = effect_of(ratio, nothing)
    if ratio is None or effect in NO_VERDICT:
        return effect, why
    if claim.expects is not None:
        return ("confirmed", why) if effect == claim.expects else ("refuted", f"it is {effect}")
    if claim.bound:
        return inside(ratio.median, claim.bound.get("at_least"), claim.bound.get("at_most"))
    if claim.low is None:
        return effect, why
    if claim.sense == "cost" and claim.high is not None:
        return against_cost(ratio, claim.low, claim.high)
    if claim.sense == "amount":
        return within(ratio.median, claim.low, claim.high, about=claim.about)
    return against_claim(ratio, claim.low, nothing, claim.high)


def _of_metric(claim: Documented, pairs: Sequence[Pair]) -> tuple[str, int, Verdict, str]:
    """Verdict on a metric that the runs reported, such as the score error."""
    values = _metrics_of(claim.quantity, pairs)
    spread = spread_of(values)
    if spread is None or spread.n < FEWEST:
        return "", len(values), "not measured yet", f"{len(values)} of at least {FEWEST} runs"
    shown = _SHOWN.get(claim.quantity, "{:.3g}").format(spread.median)
    if claim.bound:
        return (
            shown,
            spread.n,
            *inside(spread.median, claim.bound.get("at_least"), claim.bound.get("at_most")),
        )
    if claim.sense == "most":
        return shown, spread.n, *inside(spread.median, None, claim.high)
    return shown, spread.n, *against_claim(spread, claim.low, high=claim.high)


def _metrics_of(quantity: str, pairs: Sequence[Pair]) -> list[float]:
    if quantity == "loss_difference":
        return [abs(value) for value in _loss_differences(pairs)]
    if quantity == "labels_share":
        baselines = [(pair.baseline.get("metrics") or {}, pair.baseline.get("memory_mib")) for pair in pairs]
        return [
            metrics["labels_mib"] / mib for metrics, mib in baselines if mib and metrics.get("labels_mib")
        ]
    metrics = [pair.measured.get("metrics") or {} for pair in pairs]
    return [one[quantity] for one in metrics if quantity in one]


def _metric_ratios(pairs: Sequence[Pair], name: str) -> list[float]:
    both = [
        ((pair.baseline.get("metrics") or {}).get(name), (pair.measured.get("metrics") or {}).get(name))
        for pair in pairs
    ]
    return [ratio for a, b in both if a and b and (ratio := quotient(a, b))]


def _quality(pairs: Sequence[Pair]) -> Iterator[tuple[str, float]]:
    """Medians of the quality metrics; for a loss, the difference to the baseline's, also as a share of it."""
    tables: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (pair.baseline.get("metrics") or {}, pair.measured.get("metrics") or {}) for pair in pairs
    ]
    for name in ("score_error", "rank_agreement", "top_50_shared"):
        values = [after[name] for _, after in tables if name in after]
        if values:
            yield name, median(values)
    losses = _loss_differences(pairs)
    if losses:
        yield "loss_difference", median(losses)
        before = abs(
            median([before["loss"] for before, after in tables if "loss" in before and "loss" in after])
        )
        if before:
            yield "loss_change", median(losses) / before


def _loss_differences(pairs: Sequence[Pair]) -> list[float]:
    tables = [(pair.baseline.get("metrics") or {}, pair.measured.get("metrics") or {}) for pair in pairs]
    return [
        after["loss"] - before["loss"] for before, after in tables if "loss" in before and "loss" in after
    ]


def _shown(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{_times(spread.median)} ({_times(spread.low)}–{_times(spread.high)})"


def _times(value: float) -> str:
    return f"{value:,.0f}×" if value >= 100 else f"{value:.2f}×"
