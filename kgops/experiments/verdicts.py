"""Verdicts on options and claims from the ratios of paired runs: one rule and one set of words for all pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal

from kgops.experiments.trial_result import Quantity, Spread, ratios, spread_of
from kgops.jobs.workloads import LEFT_OUT
from storage.benches import Pair

# Of a claim; of an option; of the baseline and of the control; of any of them.
Verdict = Literal[
    "confirmed",
    "smaller",
    "larger",
    "refuted",
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
NEAR = 2.0  # a claim's condition over what was measured, at most
ABOUT = 0.1  # tolerance of a claim with “about”
RULE = (
    "A benchmark compares each variant with its baseline, pair by pair; the control (“… again”) is a "
    "second run of the baseline. An option is effective if the interquartile range (IQR) of its ratios "
    f"lies above 1, harmful if it lies below 1, in both cases by more than {NOTHING:.0%} and more than the "
    "control's deviation; otherwise it has no effect. A claimed effect is confirmed if the median reaches "
    "the claimed range, else smaller. A claimed cost is confirmed if the median lies in the claimed "
    "range, else smaller or larger. A claimed bound or amount is confirmed if the value meets it to the "
    f"claimed digits (“about” allows {ABOUT:.0%}), else refuted. A variant that runs although it was "
    "claimed to be impossible refutes the claim. What has not run, what --quick leaves out, and an option with "
    f"fewer than {FEWEST} pairs are not measured yet. An option or claim cannot be tested here if this machine or "
    "the document lacks what it needs, if what was measured is further from the claim's case than a factor of "
    f"{NEAR:g}, or if its IQR spans 1 and the ends differ by more than a factor of {APART:g}. "
    "Where a GPU is needed, a ratio of memory or a batch that fits is predicted for kgops' own code; sizes that "
    "the document does not state are assumed over a range, and a claim that holds only in a part of it cannot "
    "be tested here. An amount that depends on such sizes is not judged. The control "
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
    """Verdict without a claim (effective, no effect or harmful), and the reason."""
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


def against_claim(
    ratio: Spread | None, low: float | None, noise: float = NOTHING, high: float | None = None
) -> tuple[Verdict, str]:
    """Verdict on a ratio against a claimed gain of `low` times, up to `high` if given."""
    verdict, why = effect_of(ratio, noise)
    if verdict != "effective" or ratio is None or low is None:
        return verdict, why
    if ratio.median < low:
        return "smaller", ""
    return "confirmed", "more than claimed" if high is not None and ratio.median > high else ""


def against_cost(ratio: Spread | None, low: float, high: float) -> tuple[Verdict, str]:
    """Verdict on a ratio of speeds against a claimed slowdown from `low` to `high`, both below 1."""
    verdict, why = effect_of(ratio)
    if verdict in NO_VERDICT or ratio is None:
        return verdict, why
    if ratio.median > high:
        return "smaller", "it costs less than claimed"
    return ("confirmed", "") if ratio.median >= low else ("larger", "it costs more than claimed")


def of_trouble(trouble: str) -> tuple[Verdict, str]:
    """Verdict on a variant that did not run, and the reason."""
    return "not measured yet" if LEFT_OUT in trouble else "cannot be tested here", trouble


def of_gain(value: float, low: float, high: float | None = None) -> tuple[Verdict, str]:
    """Verdict on a single factor against a claimed gain."""
    return against_claim(Spread(value, value, value, FEWEST), low, high=high)


def within(
    value: float, low: float | None, high: float | None, *, about: bool = False
) -> tuple[Verdict, str]:
    """Verdict on an amount against a claimed range, to the precision of the claim's digits."""
    below = low is not None and value < low - _slack(low, about)
    above = high is not None and value > high + _slack(high, about)
    if below or above:
        return "refuted", "it is smaller" if below else "it is larger"
    return "confirmed", ""


def inside(value: float, at_least: float | None, at_most: float | None) -> tuple[Verdict, str]:
    """Verdict on a value against an exact bound."""
    if (at_least is not None and value < at_least) or (at_most is not None and value > at_most):
        return "refuted", ""
    return "confirmed", ""


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


def _slack(claimed: float, about: bool) -> float:
    """Half of the claim's last digit, or a tenth of the value with “about”."""
    if about:
        return ABOUT * abs(claimed)
    return 0.5 * 10.0 ** int(Decimal(repr(claimed)).as_tuple().exponent)
