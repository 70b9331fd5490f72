"""Summary of a benchmark's pairs: one row per variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kgops.experiments.trial_result import Quantity, Spread, alike, ratios, spread_of, troubles
from kgops.jobs.numbers import median
from kgops.workloads.registry import LEFT_OUT
from storage import benches
from storage.benches import Bench, Pair
from storage.database import Connection

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
        *absolute(measured, "seconds"),
        *absolute(measured, "memory_mib"),
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
        *absolute(measured, "seconds"),
        *absolute(measured, "memory_mib"),
        {},
        {},
        (),
        _busy(pairs),
        "baseline",
        "",
    )


def absolute(measured: Iterable[dict[str, Any]], key: str) -> tuple[Spread | None, str]:
    """Seconds or MiB of trials without trouble, and what they are of."""
    known = [one for one in measured if one.get(key) is not None and not one.get("trouble")]
    of = {"seconds": "seconds_of", "memory_mib": "memory_of"}[key]
    return spread_of([one[key] for one in known]), known[-1][of] if known else ""


def _quality(pairs: Sequence[Pair]) -> dict[str, tuple[float | None, float | None]]:
    medians = {}
    for name in QUALITY:
        before = middle([pair.baseline for pair in pairs], name)
        after = middle([pair.measured for pair in pairs], name)
        if before is not None or after is not None:
            medians[name] = (before, after)
    return medians


def middle(measured: Iterable[dict[str, Any]], name: str) -> float | None:
    """The median of a metric."""
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


# Of an option; of the baseline and of the control; of any of them.
Verdict = Literal[
    "effective",
    "no effect",
    "harmful",
    "baseline",
    "steady",
    "unsteady",
    "not measured yet",
    "cannot be tested here",
]
NO_VERDICT: tuple[Verdict, ...] = ("not measured yet", "cannot be tested here")
Noise = Mapping[Quantity, float]  # deviation of the control from 1

NOTHING = 0.05  # a smaller deviation is no effect, however certain
FEWEST = 3  # pairs; fewer give no useful quartiles
APART = 2.0  # upper / lower quartile; above it the machine was too noisy for a verdict
RULE = (
    "A benchmark compares each variant with its baseline, pair by pair; the control (“… again”) is a "
    "second run of the baseline. An option is effective if the interquartile range (IQR) of its ratios "
    f"lies above 1, harmful if it lies below 1, in both cases by more than {NOTHING:.0%} and more than the "
    "control's deviation; otherwise it has no effect. What has not run, what --quick leaves out, and an option with "
    f"fewer than {FEWEST} pairs are not measured yet. An option cannot be tested here if this machine lacks what it "
    f"needs, or if its IQR spans 1 and the ends differ by more than a factor of {APART:g}. The control "
    f"shows the machine's noise: steady if its IQR lies within {NOTHING:.0%} of 1, else unsteady."
)


def is_control(variant: str, baseline: str) -> bool:
    """Whether the variant is the control: the baseline run again, which shows the machine's noise."""
    return variant == f"{baseline} again"


def noise_of(control: Spread | None) -> float:
    """Deviation from 1 that counts as no effect: the rule's minimum, or the control's deviation if larger."""
    return NOTHING if control is None else max(NOTHING, _off(control))


def noises(pairs: Sequence[Pair], baseline: str) -> Noise:
    """Noise of speed and memory, from the control's pairs if there are any."""
    controls = [pair for pair in pairs if is_control(pair.variant, baseline)]
    quantities: tuple[Quantity, ...] = ("speed", "memory")
    return {quantity: noise_of(spread_of(ratios(controls, quantity))) for quantity in quantities}


def steadiness(speed: Spread | None, memory: Spread | None) -> tuple[Verdict, str]:
    """Verdict on the control, whose differences come from the machine."""
    enough = _enough(speed)
    if speed is None or enough is not None:
        return "not measured yet", enough or ""
    why = f"differs by up to {_off(speed):.0%}" if _off(speed) > NOTHING else ""
    if memory is not None and _off(memory) > NOTHING:
        why = "; ".join(filter(None, (why, f"memory differs by up to {_off(memory):.0%}")))
    return "unsteady" if why else "steady", why


def effect_of(ratio: Spread | None, noise: float = NOTHING) -> tuple[Verdict, str]:
    """Verdict (effective, no effect or harmful), and the reason."""
    enough = _enough(ratio)
    if ratio is None or enough is not None:
        return "not measured yet", enough or ""
    if ratio.low > 1 + noise:
        return "effective", ""
    if ratio.high < 1 / (1 + noise):
        return "harmful", ""
    if ratio.low < 1 < ratio.high and ratio.high > APART * ratio.low:
        return "cannot be tested here", f"quartiles from {ratio.low:.2f} to {ratio.high:.2f}"
    beyond = ratio.low > 1 + NOTHING or ratio.high < 1 / (1 + NOTHING)
    return "no effect", f"the control differs by up to {noise:.0%}" if beyond else ""


def of_both(speed: Spread | None, memory: Spread | None, noise: Noise) -> tuple[Verdict, str]:
    """Verdict on time, with the verdict on memory as reason if it differs."""
    verdict, why = effect_of(speed, noise["speed"])
    other, _ = effect_of(memory, noise["memory"])
    if verdict in NO_VERDICT or other in (verdict, *NO_VERDICT):
        return verdict, why
    return verdict, "; ".join(filter(None, (why, f"memory: {other}")))


def of_trouble(trouble: str) -> tuple[Verdict, str]:
    """Verdict on a variant that did not run, and the reason."""
    return "not measured yet" if LEFT_OUT in trouble else "cannot be tested here", trouble


def shown(verdict: str, why: str) -> str:
    """Verdict and reason as all tables show them."""
    return f"{verdict} ({why})" if why else verdict


def _enough(ratio: Spread | None) -> str | None:
    """Reason why there are not enough data for a verdict, or None."""
    if ratio is None:
        return "no pair has this value"
    return f"{ratio.n} of at least {FEWEST} pairs" if ratio.n < FEWEST else None


def _off(control: Spread) -> float:
    return max(control.high - 1, 1 / control.low - 1)
