"""Reads jobs: tables and TOML files become validated jobs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kgops.errors import BadJob
from kgops.jobs import run_options, toml
from kgops.jobs.files import read_named
from kgops.jobs.job import GpuRequest, Job, Limits
from kgops.jobs.option import Option, describe
from kgops.jobs.option_reading import joined, nearest, read_table, unreadable, unwritable
from kgops.jobs.run_options import CLUSTER_OPTIONS, GPU_OPTIONS, LIMITS, LONGEST_LABEL, NAMES, ClusterRequest
from kgops.jobs.secrets import masked_arguments, masked_text, secret_in
from kgops.workloads.catalog import option_problems
from kgops.workloads.registry import WORKLOADS, named_paths

LARGEST_JOB_FILE = 4 << 20


STDIN = Path("-")


_TOP = (
    Option("workload", required=True),
    *NAMES,
    Option("options", "table"),
    Option("gpu", "table"),
    Option("limits", "table"),
    Option("on", "table"),
)


def read_job(table: object, source: str) -> Job:
    """The job in `table`, or BadJob with every problem in it."""
    if problems := unreadable(table):
        raise BadJob(source, problems)
    if not isinstance(table, Mapping):
        raise BadJob(source, [f"expected a table, found {describe(table)}"])
    name = table.get("workload")
    workload = WORKLOADS.get(name) if isinstance(name, str) else None
    if isinstance(name, str) and workload is None:
        problems.append(f"workload: there is no {name!r:.60}{nearest(name, WORKLOADS)}")
    # Without a known workload its table cannot be judged; the rest still is.
    workload_tables = (
        (Option(workload.name, "table"),) if workload else tuple(Option(key, "table") for key in WORKLOADS)
    )
    top = read_table("", table, (*_TOP, *workload_tables), problems)
    problems_before = len(problems)
    settings = (
        read_table(workload.name, table.get(workload.name, {}), workload.settings, problems)
        if workload
        else {}
    )
    if workload and len(problems) == problems_before:
        problems += workload.check(settings)
    gpu = read_table("gpu", top["gpu"] or {}, GPU_OPTIONS, problems)
    limits = read_table("limits", top["limits"] or {}, LIMITS, problems)
    on = read_table("on", top["on"] or {}, CLUSTER_OPTIONS, problems)
    problems += run_options.problems_of(on, str(name), is_split=workload is not None and workload.on_clusters)
    options = dict(top["options"] or {})
    problems += option_problems(options)
    problems += unwritable(table)
    problems += _secrets_in(workload.name, settings, on["options"] or ()) if workload else []
    if problems or workload is None:
        raise BadJob(source, problems)
    if limits["attempts"] is None:
        limits["attempts"] = workload.attempts
    default_label = workload.label(settings)[:LONGEST_LABEL]
    if not default_label.strip():
        default_label = workload.name
    return Job(
        workload=workload.name,
        label=masked_text(top["label"] or "")[:LONGEST_LABEL] or default_label,
        settings=settings,
        profile=top["profile"],
        options=options,
        gpu=GpuRequest(**gpu),
        limits=Limits(**limits),
        on=ClusterRequest(**{**on, "options": tuple(on["options"] or ())}),
    )


def _secrets_in(name: str, settings: Mapping[str, Any], options: Sequence[str]) -> list[str]:
    """Problems of secrets in settings, which cannot be masked since workers read them. A command can be masked."""
    why = "of your environment, which the record would keep"
    problems = [
        f"{joined(name, key)}: holds the value of a secret variable {why}"
        for key, value in settings.items()
        if key != "command" and secret_in(value)
    ]
    if masked_arguments([*options]) != [*options]:
        problems.append(
            "on.options: holds a secret, which the record would keep; Slurm hands your environment on"
        )
    return problems


def read_job_file(path: Path) -> Job:
    """The job in a file, or on standard input for `-`."""
    table, source = read_job_table(path)
    return read_job(table, source)


def read_job_table(path: Path) -> tuple[dict[str, Any], str]:
    """The table in a job file, before it is judged, and what errors call the file."""
    source = "standard input" if path == STDIN else str(path)
    text = _standard_input() if path == STDIN else read_named(path, "job file", LARGEST_JOB_FILE)
    try:
        return toml.loads(text), source
    except ValueError as error:
        raise BadJob(source, [f"not TOML: {error}"]) from error


def _standard_input() -> str:
    content = sys.stdin.buffer.read(LARGEST_JOB_FILE + 1)
    if len(content) > LARGEST_JOB_FILE:
        raise BadJob("standard input", [f"larger than {LARGEST_JOB_FILE >> 20} MiB: this is no job"])
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadJob("standard input", [f"not UTF-8 at byte {error.start}"]) from error


def with_absolute_paths(job: Job, cwd: Path) -> Job:
    """The job for a process with another working folder than `cwd`."""
    settings: dict[str, Any] = dict(job.settings)
    for key, value in named_paths(job):
        table, _, name = key.rpartition(".")
        path = str(cwd / value)
        if table:
            settings[table] = {**settings[table], name: path}
        else:
            settings[name] = path
    return replace(job, settings=settings)
