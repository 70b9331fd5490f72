"""What keys do to runs, each by the function that the command of that name calls. All of this may take seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from kgops.cli.session import Session
from kgops.cli.tag import check_tags
from kgops.errors import NoSuchRun, Usage
from kgops.jobs.job import Job, read_job
from kgops.jobs.secrets import masked_text
from kgops.jobs.text import one_line
from kgops.settings import Home, make_home
from kgops.supervisor.control import stop_run
from storage import reports, runs
from storage.database import open_writer, transaction
from storage.runs import Run

if TYPE_CHECKING:
    from kgops.views.drafts import Draft
    from kgops.views.listing import Deleted

__all__ = ["again", "delete", "note", "resume", "start", "stop", "tag", "tag_all", "with_session"]

T = TypeVar("T")


def with_session(home: Home, change: Callable[[Session], T]) -> T:
    """What came of it, mostly a sentence; KgopsError or StorageError say why it was not."""
    make_home(home)
    conn = open_writer(home.database)
    try:
        return change(Session(home, conn))
    finally:
        conn.close()


def stop(session: Session, run: Run) -> str:
    _must_be_there(session, run)
    stop_run(session.home, session.conn, run, None)
    now = runs.get(session.conn, run.id)
    if now is not None and now.ended:
        return f"run {run.id} is {now.state.replace('_', ' ')}"
    return f"run {run.id} was asked to stop; it has its grace to write a checkpoint"


def resume(session: Session, run: Run) -> str:
    from kgops.supervisor import launch  # with all that plans: memory that looking on does not need

    _must_be_there(session, run)
    launch.resume(session.home, session.conn, run.id)
    return f"run {run.id} goes on"


def again(session: Session, run: Run) -> str:
    """The same job, planned anew: the GPU may have less room than it had."""
    _must_be_there(session, run)
    from kgops.views.training_run import names_a_run, with_run

    job = read_job(runs.spec(session.conn, run.id).job, f"the job of run {run.id}")
    if names_a_run(job):
        job = with_run(session.home, session.conn, job)
    number = _launched(session, job, force=False)
    return f"run {number} is the same job as run {run.id}"


def start(session: Session, draft: Draft, *, force: bool) -> Run | None:
    """The run that was started; None only where somebody deleted it in that moment."""
    from kgops.views.what_if import startable

    job = startable(session.home, session.conn, draft)
    return runs.get(session.conn, _launched(session, job, force=force))


def _launched(session: Session, job: Job, *, force: bool) -> int:
    """The number of the new run. Raises WontFit unless `force`."""
    from kgops.supervisor.launch import launch
    from kgops.supervisor.plan_job import refuse_what_cannot_fit
    from kgops.supervisor.plan_per_gpu import plan_here

    placed = plan_here(job, session.home, session.conn)
    if not force:
        refuse_what_cannot_fit(placed.planned)
    return launch(session.home, session.conn, placed.planned, each=placed.each)


def tag(session: Session, run: Run, words: str) -> str:
    _must_be_there(session, run)
    add, remove = _tags_in(words)
    reports.change_tags(session.conn, run.id, add=add, remove=remove)
    now = " ".join(reports.tags(session.conn, run.id))
    return one_line(f"run {run.id} is tagged {now}" if now else f"run {run.id} has no tags")


def tag_all(session: Session, numbers: Collection[int], words: str) -> str:
    """Either all of them or none."""
    add, remove = _tags_in(words)
    with transaction(session.conn):
        there = [run.id for run in runs.of_numbers(session.conn, list(numbers))]
        for number in there:
            reports.change_tags(session.conn, number, add=add, remove=remove)
    return f"the tags of {len(there):,} runs are changed"


def _tags_in(words: str) -> tuple[list[str], list[str]]:
    """To add, and to take away. Raises Usage where one is no tag."""
    given = words.split()
    add = [word for word in given if not word.startswith("-")]
    remove = [word[1:] for word in given if word.startswith("-") and len(word) > 1]
    check_tags((*add, *remove))
    return add, remove


def note(session: Session, run: Run, text: str) -> str:
    _must_be_there(session, run)
    if not text.strip():
        raise Usage("the note is empty")
    reports.add_note(session.conn, run.id, time.time(), masked_text(text))
    return f"noted on run {run.id}"


def delete(session: Session, numbers: Collection[int]) -> list[Deleted]:
    """Ended ones with their folders; of the others why not."""
    from kgops.views.listing import delete_marked

    return list(delete_marked(session.home, session.conn, numbers))


def _must_be_there(session: Session, run: Run) -> None:
    """What a screen shows may have been deleted since."""
    if runs.get(session.conn, run.id) is None:
        raise NoSuchRun(f"run {run.id} is no longer in the record")
