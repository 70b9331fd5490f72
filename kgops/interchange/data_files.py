"""The files and folders that a job names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kgops.jobs.job import Job
from kgops.workloads.registry import WORKLOADS


def with_absolute_paths(job: Job, cwd: Path) -> Job:
    """The job for a process with another working folder than `cwd`."""
    settings: dict[str, Any] = dict(job.settings)
    for key, value in _named(job):
        table, _, name = key.rpartition(".")
        path = str(cwd / value)
        if table:
            settings[table] = {**settings[table], name: path}
        else:
            settings[name] = path
    return replace(job, settings=settings)


def _named(job: Job) -> Iterator[tuple[str, str]]:
    workload = WORKLOADS[job.workload]
    for key in (*workload.inputs, *workload.folders):
        table, _, name = key.rpartition(".")
        value = ((job.settings[table] or {}) if table else job.settings).get(name)
        if isinstance(value, str) and value:
            yield key, value
