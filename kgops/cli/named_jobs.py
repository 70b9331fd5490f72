"""Jobs that commands name: a job file, a run or a recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kgops.cli.session import Session, existing
from kgops.errors import Usage
from kgops.jobs.job import Job
from kgops.planning import profiles
from kgops.settings import find_home
from kgops.workloads.job_files import read_job, read_job_file
from kgops.workloads.train import recipes
from storage import runs


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
    return _with_data_from(read_job_file(path), Path.cwd())


def _with_data_from(job: Job, folder: Path) -> Job:
    from kgops.interchange.data_files import with_absolute_paths

    return with_absolute_paths(job, folder)


def job_of_run(session: Session, name: str) -> Job:
    """Return the job as requested, on the same data: options that its profile set are left to the profile, unless the
    profile changed."""
    run = session.run(name)
    spec = runs.spec(session.conn, run.id)
    job = read_job(spec.job, f"the job of run {run.id}")
    job = _with_data_from(job, Path(spec.plan.get("cwd") or ""))
    chosen_by = {choice["option"]: choice["chosen_by"] for choice in spec.plan.get("choices") or []}
    requested = {
        option: value
        for option, value in job.options.items()
        if chosen_by.get(option) != f"profile {job.profile}"
    }
    without_profile = replace(job, options=requested)
    return without_profile if profiles.apply(without_profile).options == job.options else job
