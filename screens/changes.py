"""What keys do to runs, each by the function that the command of that name calls. All of this may take seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from kgops.cli.session import Session
from kgops.cli.tag import check_tags
from kgops.errors import NoSuchRun, Usage
from kgops.jobs.job import read_job
from kgops.jobs.text import one_line
from kgops.runs.control import stop_run
from kgops.settings import Home, make_home
from storage import reports, runs
from storage.database import open_writer
from storage.runs import Run

__all__ = ["again", "note", "resume", "stop", "tag", "with_session"]


def with_session(home: Home, change: Callable[[Session], str]) -> str:
    """What was done, as a sentence; KgopsError or StorageError say why it was not."""
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
    from kgops.runs import launch  # with all that plans: memory that looking on does not need

    _must_be_there(session, run)
    launch.resume(session.home, session.conn, run.id)
    return f"run {run.id} goes on"


def again(session: Session, run: Run) -> str:
    """The same job, planned anew: the card may have less room than it had."""
    _must_be_there(session, run)
    from kgops.plans.resolve import for_worker, resolve
    from kgops.runs.launch import launch
    from kgops.runs.planning import plan, refuse_what_cannot_fit
    from kgops.runs.source import names_a_run, with_run

    resolved = resolve(read_job(runs.spec(session.conn, run.id).job, f"the job of run {run.id}"))
    if names_a_run(resolved.job):
        resolved = replace(resolved, job=with_run(session.home, session.conn, resolved.job))
    with _also(for_worker(resolved.environment, os.environ)):
        planned = plan(resolved, session.home, session.conn)
        refuse_what_cannot_fit(planned)
        number = launch(session.home, session.conn, planned)
    return f"run {number} is the same job as run {run.id}"


def tag(session: Session, run: Run, words: str) -> str:
    _must_be_there(session, run)
    given = words.split()
    add = [word for word in given if not word.startswith("-")]
    remove = [word[1:] for word in given if word.startswith("-") and len(word) > 1]
    check_tags((*add, *remove))
    reports.change_tags(session.conn, run.id, add=add, remove=remove)
    now = " ".join(reports.tags(session.conn, run.id))
    return one_line(f"run {run.id} is tagged {now}" if now else f"run {run.id} has no tags")


def note(session: Session, run: Run, text: str) -> str:
    _must_be_there(session, run)
    if not text.strip():
        raise Usage("the note is empty")
    reports.add_note(session.conn, run.id, time.time(), text)
    return f"noted on run {run.id}"


def _must_be_there(session: Session, run: Run) -> None:
    """What a screen shows may have been deleted since."""
    if runs.get(session.conn, run.id) is None:
        raise NoSuchRun(f"run {run.id} is no longer in the record")


@contextmanager
def _also(variables: Mapping[str, str]) -> Iterator[None]:
    """A worker gets the environment of whoever launches it; the next one must not get this one's too."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
