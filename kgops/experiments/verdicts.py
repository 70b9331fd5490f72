"""What may be said of an option, from the ratios of its pairs: one rule and one set of words, wherever it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal, get_args

from kgops.experiments.pairs import Quantity, Spread, ratios, spread_of
from storage.benches import Pair

__all__ = [
    "FEWEST",
    "NOTHING",
    "RULE",
    "WORDS",
    "Noise",
    "Verdict",
    "against_claim",
    "against_cost",
    "effect_of",
    "inside",
    "is_control",
    "noise_of",
    "noises",
    "of_both",
    "of_gain",
    "shown",
    "steadiness",
    "within",
]

# Of a claim; of an option; of what options are held against, and of it beside itself; of any of them.
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
    "cannot be tested here",
]
WORDS: tuple[Verdict, ...] = get_args(Verdict)
Noise = Mapping[Quantity, float]  # how far from 1 the baseline beside itself was

NOTHING = 0.05  # less than a twentieth is no effect, however sure it is
FEWEST = 3  # pairs; quartiles of fewer say nothing
APART = 2.0  # upper over lower quartile: beyond it the machine was not quiet enough to say anything
ABOUT = 0.1  # what a claim with “about” may be off by
RULE = (
    f"An option has an effect where the whole interquartile range of its ratios lies beyond {NOTHING:.0%} of 1 and, "
    "where the baseline also ran beside itself (“… again”), beyond the range of that, too: effective above, harmful "
    "below, else no effect. Beside a claim an effect is confirmed if the median is inside or beyond what was claimed, "
    "else smaller; a cost is confirmed inside what was claimed, else smaller or larger. A bound or an amount is "
    f"confirmed if the value is within it, as far as its digits go (“about” allows {ABOUT:.0%}), else refuted. What "
    f"was called impossible and ran is refuted. Where the range spans 1 and its ends differ by more than a factor of "
    f"{APART:g}, or there are fewer than {FEWEST} pairs, it cannot be tested here. The baseline beside itself has no "
    f"option: the machine was steady where that range lies within {NOTHING:.0%} of 1, else unsteady, by what is said."
)


def is_control(variant: str, baseline: str) -> bool:
    """Whether it is the baseline once more, which tells how steady the machine was."""
    return variant == f"{baseline} again"


def noise_of(control: Spread | None) -> float:
    """How far from 1 nothing is: by the rule, or by what the baseline beside itself has shown."""
    return NOTHING if control is None else max(NOTHING, _off(control))


def noises(pairs: Sequence[Pair], baseline: str) -> Noise:
    """Of all pairs of a benchmark, by those of the control, if it has one."""
    controls = [pair for pair in pairs if is_control(pair.variant, baseline)]
    quantities: tuple[Quantity, ...] = ("speed", "memory")
    return {quantity: noise_of(spread_of(ratios(controls, quantity))) for quantity in quantities}


def steadiness(speed: Spread | None, memory: Spread | None) -> tuple[Verdict, str]:
    """Of the baseline beside itself: what differs is the machine's doing, and no option's."""
    enough = _enough(speed)
    if speed is None or enough is not None:
        return "cannot be tested here", enough or ""
    why = f"off by up to {_off(speed):.0%}" if _off(speed) > NOTHING else ""
    if memory is not None and _off(memory) > NOTHING:
        why = "; ".join(filter(None, (why, f"memory off by up to {_off(memory):.0%}")))
    return "unsteady" if why else "steady", why


def effect_of(ratio: Spread | None, noise: float = NOTHING) -> tuple[Verdict, str]:
    """Without a claim: effective, no effect or harmful, by the rule, and the reason."""
    enough = _enough(ratio)
    if ratio is None or enough is not None:
        return "cannot be tested here", enough or ""
    if ratio.low > 1 + noise:
        return "effective", ""
    if ratio.high < 1 / (1 + noise):
        return "harmful", ""
    if ratio.low < 1 < ratio.high and ratio.high > APART * ratio.low:
        return "cannot be tested here", f"quartiles from {ratio.low:.2f} to {ratio.high:.2f}"
    beyond = ratio.low > 1 + NOTHING or ratio.high < 1 / (1 + NOTHING)
    return "no effect", f"the baseline beside itself is off by up to {noise:.0%}" if beyond else ""


def of_both(speed: Spread | None, memory: Spread | None, noise: Noise) -> tuple[Verdict, str]:
    """The effect on time, and a word where that on memory is another: an option may buy one with the other."""
    verdict, why = effect_of(speed, noise["speed"])
    other, _ = effect_of(memory, noise["memory"])
    if verdict == "cannot be tested here" or other in (verdict, "cannot be tested here"):
        return verdict, why
    return verdict, "; ".join(filter(None, (why, f"of memory: {other}")))


def against_claim(
    ratio: Spread | None, low: float | None, noise: float = NOTHING, high: float | None = None
) -> tuple[Verdict, str]:
    """The same beside a claim of `low` times, to `high` where it has a top."""
    verdict, why = effect_of(ratio, noise)
    if verdict != "effective" or ratio is None or low is None:
        return verdict, why
    if ratio.median < low:
        return "smaller", ""
    return "confirmed", "more than claimed" if high is not None and ratio.median > high else ""


def against_cost(ratio: Spread | None, low: float, high: float) -> tuple[Verdict, str]:
    """Beside a claimed slowdown, of a ratio of speeds from `low` to `high`, both below 1."""
    verdict, why = effect_of(ratio)
    if verdict == "cannot be tested here" or ratio is None:
        return verdict, why
    if ratio.median > high:
        return "smaller", "it costs less than claimed"
    return ("confirmed", "") if ratio.median >= low else ("larger", "it costs more than claimed")


def of_gain(value: float, low: float, high: float | None = None) -> tuple[Verdict, str]:
    """A single factor beside a claimed one."""
    return against_claim(Spread(value, value, value, FEWEST), low, high=high)


def within(
    value: float, low: float | None, high: float | None, *, about: bool = False
) -> tuple[Verdict, str]:
    """An amount beside the claimed one: it is met if it lies inside, as far as the claim's digits go."""
    below = low is not None and value < low - _slack(low, about)
    above = high is not None and value > high + _slack(high, about)
    if below or above:
        return "refuted", "it is smaller" if below else "it is larger"
    return "confirmed", ""


def inside(value: float, at_least: float | None, at_most: float | None) -> tuple[Verdict, str]:
    """A value beside a bound, which it has to keep exactly."""
    if (at_least is not None and value < at_least) or (at_most is not None and value > at_most):
        return "refuted", ""
    return "confirmed", ""


def shown(verdict: str, why: str) -> str:
    """As every table has it."""
    return f"{verdict} ({why})" if why else verdict


def _enough(ratio: Spread | None) -> str | None:
    """Why nothing can be said of it."""
    if ratio is None:
        return "no pair has this value"
    return f"{ratio.n} of at least {FEWEST} pairs" if ratio.n < FEWEST else None


def _off(control: Spread) -> float:
    return max(control.high - 1, 1 / control.low - 1)


def _slack(claimed: float, about: bool) -> float:
    """Half of the last digit that was written down, or a share of the whole."""
    if about:
        return ABOUT * abs(claimed)
    return 0.5 * 10.0 ** int(Decimal(repr(claimed)).as_tuple().exponent)
