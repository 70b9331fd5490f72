"""The home and database of a command, and the runs and jobs that are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kgops.cli.output import tell
from kgops.errors import KgopsError, NoSuchRun, Usage
from kgops.jobs import recipes
from kgops.jobs.job import Job, read_job, read_job_file
from kgops.jobs.text import one_line
from kgops.planning import profiles
from kgops.settings import Home, find_home, make_home
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.unsettled import needs_settling
from storage import runs
from storage.database import Connection, open_reader, open_writer
from storage.errors import DatabaseMissing, DatabaseNewer, DatabaseReadOnly, StorageError
from storage.runs import Run

__all__ = [
    "job_by_name",
    "job_of_run",
]


def job_by_name(session: Session, name: str) -> Job:
    if name.endswith(".toml") or Path(name).is_file():
        return read_job_file(Path(name))
    if name == "last" or name.isdecimal():
        return job_of_run(session, name)
    if name in recipes.names():
        return read_job_file(recipes.find(name))
    raise Usage(
        f"there is no job file, run or recipe {name!r:.60}",
        f"give a job file, a run, or a recipe: {', '.join(recipes.names())}",
    )


def job_of_run(session: Session, name: str) -> Job:
    """Return the job as requested: options that its profile set are left to the profile, unless the profile changed."""
    run = session.run(name)
    spec = runs.spec(session.conn, run.id)
    job = read_job(spec.job, f"the job of run {run.id}")
    chosen_by = {choice["option"]: choice["chosen_by"] for choice in spec.plan.get("choices") or []}
    requested = {
        option: value
        for option, value in job.options.items()
        if chosen_by.get(option) != f"profile {job.profile}"
    }
    without_profile = replace(job, options=requested)
    return without_profile if profiles.apply(without_profile).options == job.options else job


class Session(NamedTuple):
    home: Home
    conn: Connection

    def folder(self, run: Run) -> RunFolder:
        return RunFolder(self.home.runs / run.folder)

    def run(self, name: str) -> Run:
        """Return the run with this number, or the newest for `last`."""
        run = runs.latest(self.conn) if name == "last" else None
        if name != "last":
            if not name.isdecimal() or len(name) > 18:
                raise NoSuchRun(f"{name!r} is not a run", "give a run's number, or `last`")
            run = runs.get(self.conn, int(name))
        if run is None:
            raise NoSuchRun(f"there is no run {name}", "`kgops runs` lists runs")
        return run


def for_writing() -> Session:
    home = find_home()
    make_home(home)
    conn = open_writer(home.database)
    _settle(home, conn)
    return Session(home, conn)


def for_changing() -> Session:
    """Open a session for commands that must work on a full disk: warn and open it read-only if needed."""
    try:
        return for_writing()
    except (DatabaseMissing, DatabaseNewer, DatabaseReadOnly):
        raise
    except StorageError as error:
        session = existing()
        tell(f"Warning: {error.message}")
        return session


def for_reading() -> Session:
    """Open a read-only session. Raise DatabaseMissing before the first run. Repair runs if the home is writable."""
    home = find_home()
    conn = open_reader(home.database)
    if needs_settling(home, conn):
        try:
            make_home(home)
            _settle(home, open_writer(home.database, busy_timeout_s=2.0))
        except (KgopsError, StorageError) as error:
            tell(f"Warning: the states below may be outdated: {error.message}")
    return Session(home, conn)


def _settle(home: Home, conn: Connection) -> None:
    """Repair runs and print a note for each."""
    from kgops.supervisor.settle import settle  # half of the imports of a listing, and seldom needed

    done = settle(home, conn)
    for numbers, what in (
        (done.restored, "was accepted by a command that was killed, and is now in the database"),
        (done.adopted, "had lost its supervisor and has a new one; its worker went on"),
        (done.restarted, "had lost its supervisor, and has a new one that starts its worker"),
        (done.ended, "had ended without its supervisor; its end is now in the database"),
    ):
        for number in numbers:
            tell(f"Note: run {number} {what}.")
    for trouble in done.troubles:
        tell(f"Warning: {one_line(trouble, 400)}.")


def existing() -> Session:
    """Open a session for a command on a run: without a database there is no such run."""
    try:
        return for_reading()
    except DatabaseMissing as error:
        raise NoSuchRun("there are no runs yet", "start one: kgops run exec -- python train.py") from error
