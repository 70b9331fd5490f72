"""All optimizations by name, whichever workload has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kgops.jobs.option import Effect, Option
from kgops.workloads.explain.job import EXPLAIN_OPTIONS
from kgops.workloads.predict.job import PREDICT_OPTIONS
from kgops.workloads.regress.options import REGRESS_OPTIONS
from kgops.workloads.tracin.options import TRACIN_OPTIONS
from kgops.workloads.train.options import TRAIN_OPTIONS

# A name has one set of values and one effect in every workload; help, default and flags may differ.
OPTIONS: dict[str, Option] = {
    option.name: option
    for options in (EXPLAIN_OPTIONS, PREDICT_OPTIONS, REGRESS_OPTIONS, TRACIN_OPTIONS, TRAIN_OPTIONS)
    for option in options
    if option.effect is not None
}


def option_problems(options: Mapping[Any, Any], *, path: str = "options") -> list[str]:
    """Problems of these option names and values, each with its key."""
    from kgops.jobs.option_reading import (
        joined,
        unknown_names,
    )  # imported here: supervisors need only the effects

    problems = [
        f"{joined(path, name)}: {problem}"
        for name, value in options.items()
        if name in OPTIONS and (problem := OPTIONS[name].problem(value))
    ]
    return unknown_names(path, options, OPTIONS, "option") + problems


_EFFECTS: dict[str, Effect] = {
    "expandable_segments": "exact"
}  # of a profile's variables: how memory is laid out


def effect_of(name: str) -> Effect:
    """Effect of an option; an unknown option counts as changing results."""
    option = OPTIONS.get(name)
    return (option.effect if option else _EFFECTS.get(name)) or "changes results"
