"""Options: every optimization of kgops, its allowed values and its effect on results."""

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
    values: tuple[Any, ...] = ()  # allowed values; int stands for any whole number from 1 on
    pattern: str | None = None  # regular expression of other allowed texts
    example: str = ""  # of a text that matches the pattern

    def trouble(self, value: Any) -> str | None:
        """The problem with this value, or None."""
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if any(value is allowed or (isinstance(value, str) and value == allowed) for allowed in self.values):
            return None
        if int in self.values and is_count:
            return None
        if self.pattern is not None and isinstance(value, str) and re.fullmatch(self.pattern, value):
            return None
        allowed_values = ["a whole number from 1 on" if v is int else _word(v) for v in self.values]
        allowed_values += [self.example] if self.example else []
        return f"must be {' or '.join(allowed_values)}; found {value!r:.60}"


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_FORMATS = ("fp32", "tf32", "fp16", "bf16")
_COMPILE_MODES = ("off", "default", "reduce-overhead", "max-autotune")

OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("precision", "rounding", "number format of large matrix products", ("auto", *_FORMATS)),
        Option("batch_size", "changes results", "examples per optimizer step", (int,)),
        Option(
            "microbatch",
            "rounding",
            "examples per pass; gradients add up",
            ("auto", int),
        ),
        Option("temporal_frames", "changes results", "frames per window", (int,)),
        Option(
            "memory_optimized", "changes results", "half the channels of the image network", (True, False)
        ),
        Option("block", "exact", "training triples scored at once", (int,)),
        Option("tests_at_once", "exact", "test triples scored at once", ("auto", int)),
        Option("entity_chunk", "exact", "entities scored at once", ("auto", int)),
        Option(
            "gradient_checkpointing",
            "exact",
            "recompute activations to save memory",
            (True, False),
        ),
        Option("memory_cleanup", "exact", "free cached memory when it runs short", (True, False)),
        Option("compile", "rounding", "torch.compile mode", _COMPILE_MODES),
        Option("cuda_graphs", "exact", "replay each step as one CUDA graph", (True, False)),
        Option("filtering", "changes results", "score the test triple's neighbourhood", (True, False)),
        Option("last_layers", "changes results", "gradients of the last layers only", (False, int)),
        Option(
            "gram_precision",
            "rounding",
            "number format of the largest products",
            ("fp32", "fp16", "bf16"),
        ),
        Option("vectorized_gradients", "exact", "gradients of many triples at once", (True, False)),
        Option("test_gradient_caching", "exact", "compute gradients of test triples once", (True, False)),
        Option(
            "devices",
            "rounding",  # TracIn results stay the same byte for byte; training sums in another order
            "GPUs, or CPU processes, that share the run",
            ("all", int),
            r"\d+(,\d+)+",
            "GPUs as in 0,1",
        ),
        Option("optimizer_kernel", "rounding", "fused or plain optimizer kernel", ("fused", "plain")),
        Option(
            "scale_gradients",
            "rounding",
            "scale the loss so that fp16 gradients do not underflow",
            (True, False),
        ),
        Option("num_workers", "exact", "data loader processes; kgops keeps data on the device", (0, int)),
    )
}


def option_problems(options: Mapping[Any, Any], *, path: str = "options") -> list[str]:
    """Problems of these option names and values, each with its key."""
    from kgops.jobs.keys import joined, unknown_names  # imported here: supervisors need only the effects

    troubles = [
        f"{joined(path, name)}: {trouble}"
        for name, value in options.items()
        if name in OPTIONS and (trouble := OPTIONS[name].trouble(value))
    ]
    return unknown_names(path, options, OPTIONS, "option") + troubles


def effect_of(name: str) -> Effect:
    """Effect of an option; an unknown option counts as changing results."""
    option = OPTIONS.get(name)
    return option.effect if option else "changes results"
