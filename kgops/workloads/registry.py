"""All workloads by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kgops.jobs.files import read_json
from kgops.jobs.job import Job
from kgops.jobs.option import defaults_of
from kgops.workloads.evaluate.job import EVALUATE
from kgops.workloads.exec.job import EXEC
from kgops.workloads.explain.job import EXPLAIN
from kgops.workloads.pipeline.job import PIPELINE
from kgops.workloads.predict.job import PREDICT
from kgops.workloads.regress.job import REGRESS
from kgops.workloads.tracin.job import TRACIN
from kgops.workloads.train.job import TRAIN
from kgops.workloads.workload import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (TRAIN, PREDICT, EVALUATE, TRACIN, EXPLAIN, PIPELINE, REGRESS, EXEC)
}


def workload_of(job: Job) -> Workload:
    return WORKLOADS[job.workload]


def named_paths(job: Job) -> Iterator[tuple[str, str]]:
    """The files and folders that a job reads, as it names them, by their keys; `table.key` inside a table."""
    workload = workload_of(job)
    for key in (*workload.inputs, *workload.folders):
        table, _, name = key.rpartition(".")
        value = ((job.settings.get(table) or {}) if table else job.settings).get(name)
        if isinstance(value, str) and value:
            yield key, value


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
