"""Recommendations from the claim benchmarks: options to use, options to avoid, options that change results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kgops.experiments.claims import Judged
from kgops.experiments.verdicts import NOTHING, Noise, effect_of, is_control

__all__ = ["HEADS", "OPTION_NAMES", "Advice", "Category", "advice", "by_category"]

Category = Literal["use", "trade", "leave", "changes", "untested"]
HEADS: dict[Category, str] = {
    "use": "Use: faster or less memory, at no cost",
    "trade": "Trade-off: less time for more memory, or less memory for more time",
    "changes": "Changes results: check the effect before use",
    "leave": "Do not use: no gain here",
    "untested": "Not tested here",
}
_ROUNDING = 0.01  # of the largest score; a larger error is a changed result
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


def advice(judged: Iterable[Judged], baseline: str, noise: Noise) -> list[Advice]:
    """One recommendation for each variant of a table, without the control (the baseline run again)."""
    by_variant: dict[str, Advice] = {}
    for one in judged:
        if one.variant not in by_variant and not is_control(one.variant, baseline):
            by_variant[one.variant] = _advice(one, noise)
    return list(by_variant.values())


def _advice(one: Judged, noise: Noise) -> Advice:
    option = OPTION_NAMES.get(one.variant, one.variant)
    if one.speed is None:
        return Advice("untested", option, one.why)
    speed, memory = effect_of(one.speed, noise["speed"])[0], effect_of(one.memory, noise["memory"])[0]
    texts = [f"{one.speed.median:,.2f} times as fast"]
    if one.memory is not None:
        texts.append(_memory_in_words(one.memory.median))
    error = one.quality.get("score_error", 0.0)
    if error > _ROUNDING:
        texts.append(f"scores differ by up to {error:.0%} of the largest score")
        if "top_50_shared" in one.quality:
            texts.append(f"{one.quality['top_50_shared']:.0%} of the top 50 unchanged")
    return Advice(_category(one, speed, memory, error), option, ", ".join(texts))


def _category(one: Judged, speed: str, memory: str, error: float) -> Category:
    effects = (speed, memory)
    if "effective" not in effects:
        return "leave"
    if error > _ROUNDING or one.variant == "small model":
        return "changes"
    # A median cost within the noise still counts: it is what a user gets.
    costs = any(ratio is not None and ratio.median < 1 - NOTHING for ratio in (one.speed, one.memory))
    return "trade" if costs or "harmful" in effects else "use"


def _memory_in_words(less: float) -> str:
    if f"{less:.2f}" == "1.00":
        return "the same memory"
    return f"{less:,.2f} times less memory" if less > 1 else f"{1 / less:,.2f} times the memory"


def by_category(options: Sequence[Advice]) -> dict[Category, list[Advice]]:
    """Recommendations grouped by category, in the order of HEADS."""
    return {category: [one for one in options if one.category == category] for category in HEADS}
