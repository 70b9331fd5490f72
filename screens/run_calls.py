"""Key actions on runs, by the functions that the commands call. Each may take seconds: call it in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from kgops.cli.session import Session
from kgops.cli.tag import check_tags
from kgops.errors import NoSuchRun, Usage
from kgops.jobs.job import Job
from kgops.jobs.secrets import masked_text
from kgops.jobs.text import one_line
from kgops.settings import Home, make_home
from kgops.supervisor.control import stop_run
from storage import alerts as stored_alerts
from storage import reports, run_list, runs
from storage.database import open_writer, transaction
from storage.runs import Run

if TYPE_CHECKING:
    from kgops.present.drafts import Draft
    from kgops.present.listing import Deleted

T = TypeVar("T")
ByJob = Callable[[Session, Job], Run | None]


def with_session(home: Home, change: Callable[[Session], T]) -> T:
    """Returns the result of `change`, mostly a message. Raises KgopsError or StorageError."""
    make_home(home)
    conn = open_writer(home.database)
    try:
        return change(Session(home, conn))
    finally:
        conn.close()


def acknowledge(session: Session, alerts: list[str]) -> str:
    stored_alerts.acknowledge(session.conn, alerts)
    return f"acknowledged {len(alerts)} alert{'' if len(alerts) == 1 else 's'}"


def stop(session: Session, run: Run) -> str:
    _check_exists(session, run)
    stop_run(session.home, session.conn, run, None)
    now = runs.get(session.conn, run.id)
    if now is not None and now.ended:
        return f"run {run.id} is {now.state.replace('_', ' ')}"
    return f"asked run {run.id} to stop; it may still write a checkpoint"


def resume(session: Session, run: Run) -> str:
    from kgops.supervisor import launch  # memory that watching does not need

    _check_exists(session, run)
    launch.resume(session.home, session.conn, run.id)
    return f"resumed run {run.id}"


def again(session: Session, run: Run) -> str:
    """Starts the job again with a new plan: free memory may have changed."""
    _check_exists(session, run)
    from kgops.cli.command_line import job_of_run
    from kgops.present.asking import names_a_run, with_run

    job = job_of_run(session, str(run.id))
    if names_a_run(job):
        job = with_run(session.home, session.conn, job)
    number = _launched(session, job, force=False, repeats=run.id)
    return f"started run {number} with the job of run {run.id}"


def start(session: Session, draft: Draft, *, force: bool) -> Run | None:
    """The started run; None only if it was deleted meanwhile."""
    from kgops.present.what_if import startable

    job = startable(session.home, session.conn, draft)
    return runs.get(session.conn, _launched(session, job, force=force))


def draft_of(session: Session, run: Run) -> tuple[Draft, str]:
    """The job of a run in the form, and the names of the settings for which the form has no field."""
    from kgops.cli.command_line import job_of_run
    from kgops.present import drafts

    _check_exists(session, run)
    return drafts.draft_of(job_of_run(session, str(run.id)))


def evaluate(session: Session, run: Run) -> Run | None:
    """Ranks the test triples of a training by its model."""
    from kgops.present.asking import with_run
    from kgops.workloads.job_files import read_job

    _check_exists(session, run)
    job = read_job({"workload": "evaluate", "evaluate": {"run": run.id}}, "this evaluation")
    return runs.get(session.conn, _launched(session, with_run(session.home, session.conn, job), force=False))


def verify(session: Session, run: Run) -> Run | None:
    """Explains the same again, with retrainings that check it."""
    from kgops.cli.command_line import job_of_run
    from kgops.workloads.job_files import read_job

    _check_exists(session, run)
    table = job_of_run(session, str(run.id)).as_table()
    job = read_job({**table, "explain": {**table["explain"], "verify": True}}, "this explanation")
    return runs.get(session.conn, _launched(session, job, force=False))


def start_demo(session: Session) -> Run | None:
    from kgops.cli.run import demo_job

    return runs.get(session.conn, _launched(session, demo_job(), force=False))


def start_or_find(session: Session, job: Job) -> Run | None:
    """The run that has the job's result, or will have it: an earlier one, else a new one."""
    from kgops.present import asking
    from kgops.present.asking import names_a_run, with_run

    found = asking.earlier(session.home, session.conn, job)
    if found is not None:
        return found
    if names_a_run(job):
        job = with_run(session.home, session.conn, job)
    return runs.get(session.conn, _launched(session, job, force=False))


def find(session: Session, job: Job) -> Run | None:
    from kgops.present import asking

    return asking.earlier(session.home, session.conn, job)


def _launched(session: Session, job: Job, *, force: bool, repeats: int | None = None) -> int:
    """Number of the new run. Raises WontFit unless `force`."""
    from kgops.planning.plan_job import refuse_what_cannot_fit
    from kgops.planning.plan_per_gpu import plan_here
    from kgops.planning.start import launch

    placed = plan_here(job, session.home, session.conn)
    if not force:
        refuse_what_cannot_fit(placed.planned)
    return launch(session.home, session.conn, placed.planned, each=placed.each, forced=force, repeats=repeats)


def tag(session: Session, run: Run, words: str) -> str:
    _check_exists(session, run)
    add, remove = _tags_in(words)
    reports.change_tags(session.conn, run.id, add=add, remove=remove)
    now = " ".join(reports.tags(session.conn, run.id))
    return one_line(f"tags of run {run.id}: {now}" if now else f"run {run.id} has no tags")


def tag_all(session: Session, numbers: Collection[int], words: str) -> str:
    """Changes the tags of all runs or, on an error, of none."""
    add, remove = _tags_in(words)
    with transaction(session.conn):
        existing = [run.id for run in run_list.of_numbers(session.conn, list(numbers))]
        for number in existing:
            reports.change_tags(session.conn, number, add=add, remove=remove)
    return f"changed the tags of {len(existing):,} runs"


def _tags_in(words: str) -> tuple[list[str], list[str]]:
    """Tags to add and to remove. Raises Usage for an invalid tag."""
    given = words.split()
    add = [word for word in given if not word.startswith("-")]
    remove = [word[1:] for word in given if word.startswith("-") and len(word) > 1]
    check_tags((*add, *remove))
    return add, remove


def note(session: Session, run: Run, text: str) -> str:
    _check_exists(session, run)
    if not text.strip():
        raise Usage("the note is empty")
    reports.add_note(session.conn, run.id, time.time(), masked_text(text))
    return f"added a note to run {run.id}"


def delete(session: Session, numbers: Collection[int]) -> list[Deleted]:
    """Deletes ended runs with their folders; for the others, says why not."""
    from kgops.present.listing import delete_marked

    return list(delete_marked(session.home, session.conn, numbers))


def _check_exists(session: Session, run: Run) -> None:
    """Raises NoSuchRun: the screen may show a run that was deleted."""
    if runs.get(session.conn, run.id) is None:
        raise NoSuchRun(f"run {run.id} is no longer in the record")
