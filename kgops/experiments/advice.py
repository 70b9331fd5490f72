"""Recommendations from the claim benchmarks: options to use, options to avoid, options that change results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kgops.experiments.claims import Judged
from kgops.experiments.trial_result import Spread
from kgops.experiments.verdicts import NO_VERDICT, NOTHING, Noise, Verdict, effect_of, is_control, noise_of

Category = Literal["use", "trade", "leave", "changes", "unmeasured", "untested"]
HEADS: dict[Category, str] = {
    "use": "Use: faster or less memory, at no cost beyond noise and rounding",
    "trade": "Trade-off: less time for more memory, or less memory for more time",
    "changes": "Changes results: check the effect before use",
    "leave": "Do not use: no gain here",
    "unmeasured": "Not measured yet",
    "untested": "Cannot be tested here",
}
_ROUNDING = 0.01  # of the largest score or of the loss; a larger difference is a changed result
_RESIDENT = "which counts library code that a trial is the first to use"
OPTION_NAMES = {
    "+ fp16": "FP16",
    "+ bf16": "bf16",
    "+ checkpointing": "gradient checkpointing",
    "+ fp16 + checkpointing": "FP16 and gradient checkpointing",
    "+ compile": "torch.compile",
    "+ checkpointing + compile": "gradient checkpointing and torch.compile",
    "+ last layers": "only the last two layers",
    "+ test caching": "caching the test gradient",
    "+ vmap": "vectorised gradients (vmap)",
    "+ filtering": "filtering training triples",
    "all that is exact": "vectorised gradients and a cached test gradient",
    "kgops": "kgops' own code",
    "their efficient loss": "the group's loss without labels",
    "small model": "the small network",
}


@dataclass(frozen=True)
class Advice:
    """The recommendation on one option of one table; `text` has its measured numbers."""

    category: Category
    option: str
    text: str


def advice(judged: Sequence[Judged], baseline: str, noise: Noise) -> list[Advice]:
    """One recommendation for each variant of a table, without the control (the baseline run again)."""
    controls = [one.resident for one in judged if is_control(one.variant, baseline)]
    resident_noise = noise_of(controls[0] if controls else None)
    by_variant: dict[str, Advice] = {}
    for one in judged:
        if one.variant not in by_variant and not is_control(one.variant, baseline):
            by_variant[one.variant] = _advice(one, noise, resident_noise)
    return list(by_variant.values())


def _advice(one: Judged, noise: Noise, resident_noise: float) -> Advice:
    option = OPTION_NAMES.get(one.variant, one.variant)
    if one.speed is None:
        return Advice("unmeasured" if one.verdict == "not measured yet" else "untested", option, one.why)
    speed, memory = effect_of(one.speed, noise["speed"])[0], effect_of(one.memory, noise["memory"])[0]
    resident = effect_of(one.resident, resident_noise)[0]
    texts = [_speed_in_words(one.speed, speed)]
    if one.memory is not None:
        texts.append(_memory_in_words(one.memory, memory))
    # Beside less memory, or the same, a larger process needs a word; beside more memory it is no news.
    if one.resident is not None and resident == "harmful" and memory != "harmful":
        texts.append(f"{1 / one.resident.median:,.2f} times the resident memory, {_RESIDENT}")
    texts += _results_in_words(one)
    return Advice(_category(one, speed, memory, resident), option, ", ".join(texts))


def _category(one: Judged, speed: Verdict, memory: Verdict, resident: Verdict) -> Category:
    if "effective" not in (speed, memory):
        unclear = [
            each for each in ((speed,) if one.memory is None else (speed, memory)) if each in NO_VERDICT
        ]
        if unclear:
            return "unmeasured" if unclear[0] == "not measured yet" else "untested"
        return "leave"
    if _changes_results(one):
        return "changes"
    # A median cost within the noise still counts: it is what a user gets.
    costs = any(ratio is not None and ratio.median < 1 - NOTHING for ratio in (one.speed, one.memory))
    return "trade" if costs or "harmful" in (speed, memory, resident) else "use"


def _changes_results(one: Judged) -> bool:
    changes = (one.quality.get("score_error", 0.0), one.quality.get("loss_change", 0.0))
    return any(abs(change) > _ROUNDING for change in changes)


def _results_in_words(one: Judged) -> list[str]:
    texts = []
    error, change = one.quality.get("score_error", 0.0), one.quality.get("loss_change", 0.0)
    if error > _ROUNDING:
        texts.append(f"scores differ by up to {error:.0%} of the largest score")
        if "top_50_shared" in one.quality:
            texts.append(f"{one.quality['top_50_shared']:.0%} of the top 50 unchanged")
    if abs(change) > _ROUNDING:
        texts.append(f"loss {abs(change):.0%} {'higher' if change > 0 else 'lower'}")
    return texts


def _speed_in_words(ratio: Spread, effect: Verdict) -> str:
    if effect == "no effect" and ratio.median < 1 - NOTHING:
        return f"{ratio.median:.2f} times as fast, within the noise"
    if effect == "no effect":
        return f"no effect on speed ({ratio.median:.2f}×)"
    if effect in NO_VERDICT:
        return f"speed unclear ({ratio.low:.2f}× to {ratio.high:.2f}×)"
    return f"{ratio.median:,.2f} times as fast"


def _memory_in_words(ratio: Spread, effect: Verdict) -> str:
    less = ratio.median
    if f"{less:.2f}" == "1.00":
        return "the same memory"
    if effect == "no effect":
        return f"no effect on memory ({less:.2f}×)"
    return f"{less:,.2f} times less memory" if less > 1 else f"{1 / less:,.2f} times the memory"


def by_category(options: Sequence[Advice]) -> dict[Category, list[Advice]]:
    """Recommendations grouped by category, in the order of HEADS."""
    return {category: [one for one in options if one.category == category] for category in HEADS}
