"""Convert a job to the command that starts it, for `kgops suggest` and the dashboard."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kgops.cli.session import Session, existing
from kgops.errors import Usage
from kgops.jobs.job import Job
from kgops.jobs.option import Option
from kgops.jobs.run_options import CLUSTER_OPTIONS, GPU_OPTIONS, LIMITS, LONGEST_LABEL, NAMES
from kgops.planning import profiles
from kgops.settings import find_home
from kgops.workloads.job_files import read_job, read_job_file, with_absolute_paths
from kgops.workloads.registry import WORKLOADS, workload_of
from kgops.workloads.train import recipes
from storage import runs

_OMITTED = (
    "left_out",
    "image_size",
)  # what kgops left out of a configuration, and the size that the data have


def as_command(job: Job) -> list[str] | None:
    """Return the command, or None if flags cannot express the job: it needs a job file."""
    if not workload_of(job).has_flags:
        return None
    workload = WORKLOADS[job.workload]
    by_profile = profiles.find(job.profile).options if job.profile is not None else {}
    words = ["kgops", job.workload]
    filters = "n_hops" in job.settings and job.options.get("filtering") is True
    if "data_directory" in workload.folders and not job.settings["data_directory"]:
        words += ["--data-directory", "DIR"]  # planned without data: DIR stands for it
    for option in workload.settings:
        value = job.settings[option.name]
        is_said = option.name == "n_hops" and filters
        if value != option.default and not is_said and option.name not in _OMITTED:
            words += _words(option, value) or []
    if filters:
        words += ["--n-hops", str(job.settings["n_hops"])]  # this flag turns filtering on
    for name, value in job.options.items():
        if name == "filtering" and filters:
            continue
        known = workload.optimizations.get(name)
        said = None if known is None else _words(known, value)
        if said is None and by_profile.get(name, known.default if known else None) != value:
            return None  # without a flag the option would have another value
        words += said or []
    tables = ((NAMES, _names(job)), (GPU_OPTIONS, asdict(job.gpu)), (CLUSTER_OPTIONS, asdict(job.on)))
    for options, values in (*tables, (LIMITS, asdict(job.limits))):
        for option in options:
            value = values[option.name]
            if value != (WORKLOADS[job.workload].attempts if option.name == "attempts" else option.default):
                words += _words(option, value) or []
    return words


def _names(job: Job) -> dict[str, str | None]:
    return {"profile": job.profile, "label": job.label if job.label != _default_label(job) else None}


def _default_label(job: Job) -> str:
    """Return the label of a job without one."""
    return WORKLOADS[job.workload].label(job.settings)[:LONGEST_LABEL]


def _words(option: Option, value: Any) -> list[str] | None:
    """The flag that sets this value; None if there is none."""
    for flag in option.flags:
        name = option.flag_name(flag)
        if flag.sets is not None:
            if flag.sets is value or (flag.sets == value and not isinstance(value, bool)):
                return [name]
        elif option.is_switch:
            return [name if value else f"--no-{name[2:]}"]
        elif isinstance(value, (list, tuple)):
            return [word for one in value for word in (name, str(one))]
        elif value is not None and not isinstance(value, bool):
            return [*([flag.needs] if flag.needs else []), name, str(value)]
    return None


def job_by_name(session: Session | None, name: str) -> Job:
    """Return the job in a file, of a run or of a recipe. Without a session, a run is only read."""
    if name.endswith(".toml") or Path(name).is_file():
        return job_in_file(Path(name))
    if name == "last" or name.isdecimal():
        return job_of_run(session or existing(), name)
    if name in recipes.names():
        return read_job_file(recipes.find(name))
    if find_home().database.exists() and runs.labelled((session or existing()).conn, name, limit=1):
        return job_of_run(session or existing(), name)
    raise Usage(
        f"there is no job file, run or recipe {name!r:.60}",
        f"give a job file, a run, or a recipe: {', '.join(recipes.names())}",
    )


def job_in_file(path: Path) -> Job:
    """Paths of its data are relative to the current folder. They become absolute, for a run that repeats it."""
    return with_absolute_paths(read_job_file(path), Path.cwd())


def job_of_run(session: Session, name: str) -> Job:
    """Return the job as requested, on the same data: options that its profile set are left to the profile, unless the
    profile changed."""
    run = session.run(name)
    spec = runs.spec(session.conn, run.id)
    job = read_job(spec.job, f"the job of run {run.id}")
    job = with_absolute_paths(job, Path(spec.plan.get("cwd") or ""))
    chosen_by = {choice["option"]: choice["chosen_by"] for choice in spec.plan.get("choices") or []}
    requested = {
        option: value
        for option, value in job.options.items()
        if chosen_by.get(option) != f"profile {job.profile}"
    }
    without_profile = replace(job, options=requested)
    return without_profile if profiles.apply(without_profile).options == job.options else job
