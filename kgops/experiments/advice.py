"""What a person should do, from the tables of claims: which options pay here, which do not, which change results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kgops.experiments.claims import Judged
from kgops.experiments.verdicts import NOTHING, Noise, effect_of, is_control

__all__ = ["HEADS", "Advice", "Category", "advice", "by_category"]

Category = Literal["use", "trade", "leave", "changes", "untested"]
HEADS: dict[Category, str] = {
    "use": "Use: faster or smaller, at no cost",
    "trade": "Use if the cost suits you: one gets better, the other worse",
    "changes": "Changes results: think before you use it",
    "leave": "Leave: no gain here",
    "untested": "Not tested here",
}
_ROUNDING = 0.01  # of the largest score: what is farther off is another result
_NAMES = {
    "+ fp16": "FP16",
    "+ bf16": "bf16",
    "+ checkpointing": "gradient checkpointing",
    "+ fp16 + checkpointing": "FP16 and gradient checkpointing",
    "+ compile": "torch.compile",
    "+ checkpointing + compile": "gradient checkpointing and torch.compile",
    "+ last layers": "the last two layers alone",
    "+ test caching": "keeping the test gradient",
    "+ vmap": "vectorised gradients (vmap)",
    "+ filtering": "filtering training triples",
    "all that is exact": "vectorised gradients and the test gradient kept",
    "kgops": "kgops' own code",
    "their efficient loss": "the group's loss without labels",
    "small model": "the small network",
}


@dataclass(frozen=True)
class Advice:
    """One option of one table: what it is, and its measured numbers in words."""

    category: Category
    option: str
    text: str


def advice(judged: Iterable[Judged], baseline: str, noise: Noise) -> list[Advice]:
    """Each variant of a table once; the baseline beside itself is no option."""
    by_variant: dict[str, Advice] = {}
    for one in judged:
        if one.variant not in by_variant and not is_control(one.variant, baseline):
            by_variant[one.variant] = _advice(one, noise)
    return list(by_variant.values())


def _advice(one: Judged, noise: Noise) -> Advice:
    option = _NAMES.get(one.variant, one.variant)
    if one.speed is None:
        return Advice("untested", option, one.why)
    speed, memory = effect_of(one.speed, noise["speed"])[0], effect_of(one.memory, noise["memory"])[0]
    text = [f"{one.speed.median:,.2f} times as fast"]
    if one.memory is not None:
        text.append(_memory_in_words(one.memory.median))
    error = one.quality.get("score_error", 0.0)
    if error > _ROUNDING:
        text.append(f"scores off by up to {error:.0%} of the largest")
        if "top_50_shared" in one.quality:
            text.append(f"{one.quality['top_50_shared']:.0%} of the top 50 are the same")
    return Advice(_category(one, speed, memory, error), option, ", ".join(text))


def _category(one: Judged, speed: str, memory: str, error: float) -> Category:
    effects = (speed, memory)
    if "effective" not in effects:
        return "leave"
    if error > _ROUNDING or one.variant == "small model":
        return "changes"
    # Within the noise, and yet no free gain: the median is what a person gets.
    costs = any(ratio is not None and ratio.median < 1 - NOTHING for ratio in (one.speed, one.memory))
    return "trade" if costs or "harmful" in effects else "use"


def _memory_in_words(less: float) -> str:
    if f"{less:.2f}" == "1.00":
        return "the same memory"
    return f"{less:,.2f} times less memory" if less > 1 else f"{1 / less:,.2f} times the memory"


def by_category(options: Sequence[Advice]) -> dict[Category, list[Advice]]:
    """In the order in which a person asks."""
    return {category: [one for one in options if one.category == category] for category in HEADS}
