"""Pairs of runs: their ratios, how far those lie apart, and what may be said of a lever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Literal

from storage.benches import Pair

__all__ = [
    "NOTHING",
    "RULE",
    "Spread",
    "Verdict",
    "against_claim",
    "effect_of",
    "noise_of",
    "of_both",
    "ratios",
    "spread_of",
    "troubles",
]

Quantity = Literal["speed", "memory"]
Verdict = Literal[
    "confirmed", "smaller", "no effect", "harmful", "cannot be tested here", "effective", "refuted"
]

NOTHING = 0.05  # less than a twentieth is no effect, however sure it is
FEWEST = 3  # pairs; quartiles of fewer say nothing
APART = 2.0  # upper over lower quartile: beyond it the machine was not quiet enough to say anything
RULE = (
    f"A lever has an effect where the whole interquartile range of its ratios lies beyond {NOTHING:.0%} of 1 and, "
    "where the baseline also ran beside itself (“… again”), beyond the range of that, too. The range above: confirmed "
    "if it reaches what was claimed, else smaller. The range below: harmful. Otherwise no effect; where the range "
    f"spans 1 and its ends differ by more than a factor of {APART:g}, or there are fewer than {FEWEST} pairs, it "
    "cannot be tested here."
)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of ratios: above 1 the variant is faster, or needs less."""

    median: float
    low: float
    high: float
    n: int


def spread_of(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    low, _, high = quantiles(values, n=4, method="inclusive")
    return Spread(median(values), low, high, len(values))


def ratios(pairs: Iterable[Pair], quantity: Quantity) -> list[float]:
    """Baseline over variant, pair by pair, where both have the figure and it is of the same thing."""
    found = []
    for pair in pairs:
        before, after = _figures(pair, quantity)
        if before is not None and after is not None and before > 0 and after > 0:
            found.append(before / after)
    return found


def troubles(pairs: Iterable[Pair]) -> list[str]:
    """Why pairs have no ratio; each reason once."""
    told = [
        f"{who}{one['trouble']}"
        for pair in pairs
        for who, one in (("the baseline: ", pair.baseline), ("", pair.measured))
        if one.get("trouble")
    ]
    return list(dict.fromkeys(told))


def noise_of(control: Spread | None) -> float:
    """How far from 1 nothing is: by the rule, or by what the baseline beside itself has shown."""
    return NOTHING if control is None else max(NOTHING, control.high - 1, 1 / control.low - 1)


def effect_of(found: Spread | None, noise: float = NOTHING) -> tuple[Verdict, str]:
    """Without a claim: effective, no effect or harmful, by the rule, and the reason."""
    if found is None:
        return "cannot be tested here", "no pair has this figure"
    if found.n < FEWEST:
        return "cannot be tested here", f"{found.n} of at least {FEWEST} pairs"
    if found.low > 1 + noise:
        return "effective", ""
    if found.high < 1 / (1 + noise):
        return "harmful", ""
    if found.low < 1 < found.high and found.high > APART * found.low:
        return "cannot be tested here", f"quartiles from {found.low:.2f} to {found.high:.2f}"
    beyond = found.low > 1 + NOTHING or found.high < 1 / (1 + NOTHING)
    return "no effect", f"the baseline beside itself is off by {noise:.0%}" if beyond else ""


def of_both(
    speed: Spread | None, memory: Spread | None, noise: float = NOTHING, memory_noise: float = NOTHING
) -> tuple[Verdict, str]:
    """The effect on time, and a word where that on memory is another: a lever may buy one with the other."""
    verdict, why = effect_of(speed, noise)
    other, _ = effect_of(memory, memory_noise)
    if verdict == "cannot be tested here" or other in (verdict, "cannot be tested here"):
        return verdict, why
    return verdict, "; ".join(filter(None, (why, f"of memory: {other}")))


def against_claim(found: Spread | None, least: float | None, noise: float = NOTHING) -> tuple[Verdict, str]:
    """The same beside a claim of at least `least` times."""
    verdict, why = effect_of(found, noise)
    if verdict != "effective" or found is None or least is None:
        return verdict, why
    return ("confirmed", "") if found.high >= least else ("smaller", "")


def _figures(pair: Pair, quantity: Quantity) -> tuple[float | None, float | None]:
    a, b = pair.baseline, pair.measured
    if a.get("trouble") or b.get("trouble"):
        return None, None
    if quantity == "memory":
        return (a["memory_mib"], b["memory_mib"]) if a["memory_of"] == b["memory_of"] else (None, None)
    if a["seconds_of"] == b["seconds_of"]:
        return a["seconds"], b["seconds"]
    return a["took_s"], b["took_s"]
