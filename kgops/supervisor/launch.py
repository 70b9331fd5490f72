"""Accepts a planned job: creates the run's folder and row atomically, then dispatches the queue. Resumes runs."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kgops.errors import KgopsError, NoSuchRun, Unavailable, Usage
from kgops.jobs.files import sync, write_durably, write_json
from kgops.jobs.job import Job
from kgops.jobs.secrets import is_masked
from kgops.settings import Home, guard_files
from kgops.supervisor import pending, queue, run_folder
from kgops.supervisor.gpu_room import READS_WITHIN_S, STARTS_WITHIN_S
from kgops.supervisor.ownership import take_over
from kgops.supervisor.plan_file import Plan, Private, as_table, queued_run, recorded_plan, write_plan
from kgops.supervisor.run_folder import RunFolder, folder_name, must_be_own
from kgops.workloads.outputs import places_of
from storage import runs
from storage.database import Connection, transaction
from storage.errors import CommitUnknown, StorageError


def _dispatch_queue(
    home: Home, conn: Connection, number: int, event: str, say: Callable[[str], None]
) -> None:
    try:
        run = runs.get(conn, number)
        wants_gpu = run is not None and run.gpu_request is not None
        queue.dispatch(home, conn, gpus_within_s=STARTS_WITHIN_S if wants_gpu else READS_WITHIN_S)
    except (StorageError, KgopsError, OSError) as error:
        say(f"run {number} is {event} but not started yet: {error}; the next kgops command tries again")


class Accepted(NamedTuple):
    """A job as it is recorded, and what starts it. `plan` lacks the number."""

    job: Job
    plan: Plan
    private: Private
    environment: dict[str, Any]


def accept(home: Home, conn: Connection, accepted: Accepted, say: Callable[[str], None]) -> int:
    """The new run's number; the run starts or queues. `say` gets the reason if it cannot start at once."""
    try:
        number = _record(home, conn, accepted)
    except CommitUnknown as error:
        raise Unavailable(
            f"the disk failed while the run was accepted: {error.message}",
            "`kgops runs` shows whether it was accepted, once the disk works again",
        ) from error
    _dispatch_queue(home, conn, number, "accepted", say)
    return number


def _record(home: Home, conn: Connection, accepted: Accepted) -> int:
    job, plan, private, environment = accepted
    with ExitStack() as until_committed, transaction(conn):
        if not plan.forced:
            _must_not_be_promised(conn, job, Path(private.cwd))
        number = max(
            runs.next_number(conn), pending.highest_number(home) + 1, pending.highest_folder(home) + 1
        )
        name = folder_name(number, job.workload, job.label)
        plan = replace(plan, number=number)
        # The marker outlives the transaction: if we are killed before the commit, the folder is restored from.
        until_committed.enter_context(pending.announce(home, name, "launch"))
        until_committed.enter_context(_new_folder(home, name, accepted._replace(plan=plan)))
        runs.add(conn, queued_run(plan, name), runs.RunSpec(job.as_table(), as_table(plan), environment))
    return number


def _must_not_be_promised(conn: Connection, job: Job, cwd: Path) -> None:
    """Refuses an output that an unfinished run will write: the one that ended last could not."""
    places = set(places_of(job.workload, job.settings, cwd))
    for run in runs.in_states(conn, runs.UNFINISHED) if places else ():
        spec = runs.spec(conn, run.id)
        settings = spec.job.get(run.workload)
        if not isinstance(settings, dict):
            continue
        if shared := places.intersection(places_of(run.workload, settings, Path(spec.plan.get("cwd") or ""))):
            raise Usage(
                f"run {run.id}, which is {run.state}, writes to {min(shared)}",
                "choose another output, or wait",
            )


@contextmanager
def _new_folder(home: Home, name: str, accepted: Accepted) -> Iterator[None]:
    """Creates the run's folder atomically, by a rename. Removes it if the body fails: a refused job must not be found
    and started later."""
    making, made = RunFolder(home.runs / f".new-{name}"), home.runs / name
    try:
        _fill_folder(making, accepted)
        making.path.rename(made)
    except OSError as error:
        shutil.rmtree(making.path, ignore_errors=True)
        raise _no_folder(home, error) from error
    # Only now may we remove the folder of this name.
    try:
        try:
            sync(home.runs)
        except OSError as error:
            raise _no_folder(home, error) from error
        yield
    except CommitUnknown:
        raise  # the row may exist: the next command decides
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _fill_folder(making: RunFolder, accepted: Accepted) -> None:
    for folder in (making.path, making.attempts, making.results):
        folder.mkdir(mode=0o700)
    write_durably(making.job, accepted.job.as_toml().encode())
    write_json(making.environment, accepted.environment)
    write_plan(making, accepted.plan, accepted.private)
    run_folder.reserve(making.outcome)
    run_folder.reserve(making.stop)
    making.events.touch(0o600)  # here, because the worker has the user's umask
    sync(making.path)


def _no_folder(home: Home, error: OSError) -> Unavailable:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Unavailable(
        f"cannot create the run's folder in {home.runs}: {os.strerror(error.errno or 0)}",
        "nothing was started; "
        + (
            "free some disk space: `kgops delete` works on a full disk"
            if full
            else "`kgops doctor` checks the home"
        ),
    )


def resume(
    home: Home,
    conn: Connection,
    number: int,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Resumes an ended run with a new attempt, from its last checkpoint if there is one."""
    run = runs.get(conn, number)
    if run is None:
        raise NoSuchRun(f"there is no run {number}")
    if not run.ended:
        raise Usage(f"run {number} is {run.state}: there is nothing to resume")
    if run.state == "succeeded":
        raise Usage(f"run {number} succeeded", f"`kgops run --again {number}` repeats it")
    folder = RunFolder(home.runs / run.folder)
    if folder.record.exists():
        raise Usage(
            f"run {number} was imported without the files to resume from",
            f"`kgops run --again {number}` repeats its job from the start",
        )
    must_be_own(number, folder, recorded_plan(conn, folder, number).key)
    lock = take_over(home, number, folder)
    if lock is None:
        raise Usage(f"another process is just finishing run {number}", "try again in a second")
    try:
        run = runs.get(conn, number)  # it may have been deleted or resumed before we had the lock
        if run is None or not folder.path.is_dir():
            raise NoSuchRun(f"there is no run {number}: it was just deleted")
        plan = recorded_plan(conn, folder, number)
        _must_be_repeatable(plan)
        with pending.announce(home, run.folder, "resume"):
            _reopen(conn, folder, plan)
    except OSError as error:
        raise Unavailable(
            f"cannot resume run {number}: {error.filename or folder.path}: {error.strerror}",
            "the run is unchanged; `kgops doctor` checks the home",
        ) from error
    except CommitUnknown as error:
        raise Unavailable(
            f"the disk failed while run {number} was resumed: {error.message}",
            "`kgops runs` shows whether it was resumed, once the disk works again",
        ) from error
    finally:
        os.close(lock)
    _dispatch_queue(home, conn, number, "resumed", say)


def _reopen(conn: Connection, folder: RunFolder, plan: Plan) -> None:
    """If we are killed in here, the marker makes settle.py tidy up."""
    write_plan(folder, plan, Private(plan.command, dict(os.environ), guard_files(), plan.cwd))
    run_folder.reserve(folder.stop)  # empty: no stop request
    run_folder.reserve(folder.outcome)  # empty: not ended
    if not runs.reopen(conn, plan.number):
        raise Usage(f"run {plan.number} was just resumed by another process")


def _must_be_repeatable(plan: Plan) -> None:
    if is_masked([*plan.command, plan.cwd]):
        raise Usage(
            f"run {plan.number} was started with a secret in its arguments, which was not recorded",
            "start a new run with the secret in the environment",
        )
