"""All workloads, and all options by name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kgops.jobs.files import read_json
from kgops.jobs.job import Job
from kgops.jobs.option import Effect, Option, defaults_of
from kgops.workloads.evaluate.job import EVALUATE
from kgops.workloads.exec.job import EXEC
from kgops.workloads.explain.job import EXPLAIN
from kgops.workloads.explain.options import EXPLAIN_OPTIONS
from kgops.workloads.pipeline.job import PIPELINE
from kgops.workloads.predict.job import PREDICT
from kgops.workloads.predict.options import PREDICT_OPTIONS
from kgops.workloads.regress.job import REGRESS
from kgops.workloads.regress.options import REGRESS_OPTIONS
from kgops.workloads.tracin.job import TRACIN
from kgops.workloads.tracin.options import TRACIN_OPTIONS
from kgops.workloads.train.job import TRAIN
from kgops.workloads.train.options import TRAIN_OPTIONS
from kgops.workloads.workload import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (TRAIN, PREDICT, EVALUATE, TRACIN, EXPLAIN, PIPELINE, REGRESS, EXEC)
}


def workload_of(job: Job) -> Workload:
    return WORKLOADS[job.workload]


def devices_of(job: Job) -> int | str:
    """How many devices share the run, or which."""
    return job.options.get("devices", 1) if workload_of(job).shares_devices else 1


def timed_by_epoch() -> tuple[str, ...]:
    """Names of the workloads whose time is known by the epoch."""
    return tuple(name for name, one in WORKLOADS.items() if one.epochs is not None)


def values_of(job: Job) -> dict[str, Any]:
    """Every option of the job's workload, with defaults."""
    return {**defaults_of(WORKLOADS[job.workload].options), **job.settings, **job.options}


Trials = Mapping[str, Sequence[Mapping[str, Any]]]  # by variant name
LEFT_OUT = "--quick leaves out"  # begins the trouble of a variant that would run without --quick
_FILE = "ways.json"  # among the results of the command's run


def write_trials(results: Path, trials: Trials) -> None:
    (results / _FILE).write_text(json.dumps(trials, indent=1))


def read_trials(results: Path) -> Trials | None:
    """None where the command wrote nothing."""
    trials: Trials | None = read_json(results / _FILE)
    return trials


def trial_of(trials: Trials, name: str, number: int) -> dict[str, Any]:
    """The record of one trial of a variant; the last record where the variant stopped early."""
    records = trials.get(name)
    return dict(records[min(number, len(records) - 1)]) if records else {"trouble": "the command did not say"}


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
