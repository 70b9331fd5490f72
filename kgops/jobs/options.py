"""Options: every optimization kgops can pull, and what pulling it does to the numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Effect = Literal["exact", "rounding", "changes results"]


@dataclass(frozen=True, slots=True)
class Option:
    """One optimization. `exact` gives the same numbers, `rounding` the same up to rounding,
    `changes results` different ones."""

    name: str
    effect: Effect
    summary: str
    values: tuple[Any, ...] = ()  # what it may be set to; int stands for any whole number from 1 on
    pattern: str | None = None  # a text may look like this as well
    example: str = ""  # of such a text

    def trouble(self, value: Any) -> str | None:
        """What is wrong with this value, or nothing."""
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if any(value is allowed or (isinstance(value, str) and value == allowed) for allowed in self.values):
            return None
        if int in self.values and is_count:
            return None
        if self.pattern is not None and isinstance(value, str) and re.fullmatch(self.pattern, value):
            return None
        shown = ["a whole number from 1 on" if v is int else _word(v) for v in self.values]
        shown += [self.example] if self.example else []
        return f"must be {' or '.join(shown)}; found {value!r:.60}"


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_FORMATS = ("fp32", "tf32", "fp16", "bf16")
_COMPILE_MODES = ("off", "default", "reduce-overhead", "max-autotune")

OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("precision", "rounding", "number format of the heavy products", ("auto", *_FORMATS)),
        Option("batch_size", "changes results", "examples per step; changes the result", (int,)),
        Option(
            "microbatch",
            "rounding",
            "examples at a time; gradients add up",
            ("auto", int),
        ),
        Option("temporal_frames", "changes results", "frames of a window; fewer: less memory", (int,)),
        Option(
            "memory_optimized", "changes results", "half the channels of the image network", (True, False)
        ),
        Option("block", "exact", "training triples scored at a time", (int,)),
        Option("tests_at_once", "exact", "test triples kept at a time", ("auto", int)),
        Option("entity_chunk", "exact", "entities at once: fewer, less memory", ("auto", int)),
        Option(
            "gradient_checkpointing",
            "exact",
            "compute activations twice, keep fewer",
            (True, False),
        ),
        Option("memory_cleanup", "exact", "give back cached memory when short", (True, False)),
        Option("compile", "rounding", "let torch.compile generate the kernels", _COMPILE_MODES),
        Option("cuda_graphs", "exact", "replay a whole step as one launch", (True, False)),
        Option("filtering", "changes results", "only the test triple's neighbourhood", (True, False)),
        Option("last_layers", "changes results", "gradients of the last layers only", (False, int)),
        Option(
            "gram_precision",
            "rounding",
            "number format of the largest products",
            ("fp32", "fp16", "bf16"),
        ),
        Option(
            "vectorized_gradients", "exact", "gradients of many triples at once, in TracIn", (True, False)
        ),
        Option("test_gradient_caching", "exact", "test triples' gradients computed once", (True, False)),
        Option(
            "devices",
            "rounding",  # a TracIn run is the same byte for byte; a training's sums are rounded in another order
            "GPUs, or processes on the CPU, that a run is spread over",
            ("all", int),
            r"\d+(,\d+)+",
            "GPUs as in 0,1",
        ),
        Option(
            "optimizer_kernel", "rounding", "one fused kernel for the optimizer's step", ("fused", "plain")
        ),
        Option(
            "scale_gradients", "rounding", "scale losses so that fp16 gradients do not vanish", (True, False)
        ),
        Option("num_workers", "exact", "processes that load data; data lives on the device here", (0, int)),
    )
}


def option_problems(options: Mapping[Any, Any], *, path: str = "options") -> list[str]:
    """What is wrong with these names and values, each with its key."""
    from kgops.jobs.keys import joined, unknown_names  # here: supervisors read kinds alone

    troubles = [
        f"{joined(path, name)}: {trouble}"
        for name, value in options.items()
        if name in OPTIONS and (trouble := OPTIONS[name].trouble(value))
    ]
    return unknown_names(path, options, OPTIONS, "option") + troubles


def effect_of(name: str) -> Effect:
    """An option nobody declared may change anything: it counts as changing results."""
    option = OPTIONS.get(name)
    return option.effect if option else "changes results"
