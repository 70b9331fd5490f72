"""A job that a person names: by its file, by a run of it, or as one that ships with kgops."""

from __future__ import annotations

from pathlib import Path

from kgops.cli.session import Session
from kgops.errors import Usage
from kgops.jobs import recipes
from kgops.jobs.job import Job, read_job, read_job_file
from storage import runs

__all__ = ["job_by_name"]


def job_by_name(session: Session, name: str) -> Job:
    if name.endswith(".toml") or Path(name).is_file():
        return read_job_file(Path(name))
    if name == "last" or name.isdecimal():
        run = session.run(name)
        return read_job(runs.spec(session.conn, run.id).job, f"the job of run {run.id}")
    if name in recipes.names():
        return read_job_file(recipes.find(name))
    raise Usage(
        f"there is no job file, run or recipe {name!r:.60}",
        f"write a job file, name a run, or a recipe: {', '.join(recipes.names())}",
    )
