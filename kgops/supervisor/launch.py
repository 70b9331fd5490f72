"""Accepts a job: creates the run's folder and row atomically, then dispatches the queue. Resumes ended runs."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kgops.errors import KgopsError, NoSuchRun, Unavailable, Usage
from kgops.jobs.files import sync, write_durably, write_json
from kgops.jobs.job import Job
from kgops.jobs.secrets import is_masked, masked_arguments, masked_text
from kgops.jobs.text import attempt_settings, fill_in
from kgops.planning.oom_fallbacks import Fallback, oom_advice, oom_fallbacks
from kgops.planning.resolve import for_worker
from kgops.planning.worth_an_attempt import Skipped, worth_an_attempt
from kgops.settings import Home, guard_files
from kgops.supervisor import pending, queue, run_folder
from kgops.supervisor.environment import describe_environment
from kgops.supervisor.gpu_room import READS_WITHIN_S, STARTS_WITHIN_S
from kgops.supervisor.launch_checks import commands_of, must_be_possible
from kgops.supervisor.linked_folder import must_be_own
from kgops.supervisor.ownership import take_over
from kgops.supervisor.plan_file import Plan, Private, as_table, recorded_plan, write_plan
from kgops.supervisor.plan_job import Planned
from kgops.supervisor.run_folder import RunFolder, folder_name
from kgops.supervisor.worker_reports import data_digests
from kgops.workloads.outputs import must_be_free, places_of
from kgops.workloads.registry import WORKLOADS
from storage import runs
from storage.database import Connection, transaction
from storage.errors import CommitUnknown, StorageError


def launch(
    home: Home,
    conn: Connection,
    planned: Planned,
    say: Callable[[str], None] = lambda text: None,
    *,
    each: Sequence[Planned] = (),
    token: str | None = None,
    forced: bool = False,
    repeats: int | None = None,
) -> int:
    """Accepts a job and returns the new run's number; the run starts or queues.

    `each`: the plans per GPU, where GPUs differ; the GPU it gets decides. `say` gets the reason if an accepted run
    cannot start at once. Of all launches with one `token` the first makes a run, and the others return its number.
    A `forced` run's workers do what they would refuse without it, also after a resume, and may replace output files.
    A worker notes what has changed in the data since the run that it `repeats`.
    """
    try:
        before = None if repeats is None else {"run": repeats, "digests": data_digests(conn, repeats)}
        number = _accept(home, conn, planned, each, token, {"forced": forced, "data_before": before})
    except CommitUnknown as error:
        raise Unavailable(
            f"the disk failed while the run was accepted: {error.message}",
            "`kgops runs` shows whether it was accepted, once the disk works again",
        ) from error
    _dispatch_queue(home, conn, number, "accepted", say)
    return number


def _dispatch_queue(
    home: Home, conn: Connection, number: int, event: str, say: Callable[[str], None]
) -> None:
    try:
        run = runs.get(conn, number)
        wants_gpu = run is not None and run.gpu_request is not None
        queue.dispatch(home, conn, gpus_within_s=STARTS_WITHIN_S if wants_gpu else READS_WITHIN_S)
    except (StorageError, KgopsError, OSError) as error:
        say(f"run {number} is {event} but not started yet: {error}; the next kgops command tries again")


def child_command(job: Job) -> list[str]:
    """Command of the job's first worker, secrets masked."""
    _, shown = commands_of(job)
    first = attempt_settings(job.settings.get("on_oom") or {})[:1]
    return fill_in(shown, first[0]) if first else shown


def fallbacks_below(planned: Planned) -> tuple[list[Fallback], list[Skipped]]:
    """OOM fallbacks worth an attempt, and those skipped because they would save nothing; none for a command, which
    lists its own."""
    if WORKLOADS[planned.job.workload].module is None:
        return [], []
    fallbacks = oom_fallbacks(planned.job, planned.target.facts, planned.entities)
    if planned.suggestion is None:
        return [*fallbacks], []
    return worth_an_attempt(fallbacks, planned.job, planned.suggestion)


def _accept(
    home: Home,
    conn: Connection,
    planned: Planned,
    each: Sequence[Planned],
    token: str | None,
    kept: Mapping[str, Any],
) -> int:
    """`kept`: fields of the plan that the start alone knows."""
    job = planned.job
    command, masked_command = commands_of(job)
    cwd = must_be_possible(job, on_gpu=planned.target.on_gpu)
    must_be_free(job, cwd, force=kept["forced"])
    masked_job = _masked(job, masked_command, cwd)
    environment = describe_environment(for_worker(planned.environment, os.environ))
    if token is not None:
        environment["start_token"] = token
    with ExitStack() as until_committed, transaction(conn):
        if token is not None and (known := runs.started_as(conn, token)) is not None:
            return known
        if not kept["forced"]:
            _must_not_be_promised(conn, job, cwd)
        number = max(
            runs.next_number(conn), pending.highest_number(home) + 1, pending.highest_folder(home) + 1
        )
        name = folder_name(number, job.workload, job.label)
        plan = _plan(number, planned, masked_command, cwd)
        by_gpu = {uuid: _plan_of_gpu(gpu_plan) for gpu_plan in each for uuid in gpu_plan.uuids}
        plan = replace(plan, by_gpu=by_gpu, **kept)
        # The marker outlives the transaction: if we are killed before the commit, the folder is restored from.
        until_committed.enter_context(pending.announce(home, name, "launch"))
        private = Private(command, dict(os.environ), guard_files(), str(cwd))
        until_committed.enter_context(_new_folder(home, name, masked_job, plan, private, environment))
        runs.add(
            conn,
            number=number,
            workload=job.workload,
            label=job.label,
            profile=job.profile,
            state="queued",
            folder=name,
            submitted_at=plan.submitted_at,
            gpu_request=plan.gpu_request,
            reserved_mib=plan.reserved_mib,
            exclusive=plan.exclusive,
            predicted_mib=plan.predicted_mib,
            spec=runs.RunSpec(masked_job.as_table(), as_table(plan), environment),
        )
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


def _plan(number: int, planned: Planned, shown: list[str], cwd: Path) -> Plan:
    job = planned.job
    fallbacks, skipped = fallbacks_below(planned)
    is_command = WORKLOADS[job.workload].module is None
    return Plan(
        number=number,
        workload=job.workload,
        label=job.label,
        profile=job.profile,
        submitted_at=time.time(),
        command=shown,
        cwd=masked_text(str(cwd)),
        gpu_request=planned.gpu_request,
        reserved_mib=planned.reserved_mib,
        predicted_mib=planned.predicted_mib,
        forecast=planned.forecast(),
        process=planned.process,
        disk=planned.disk.as_table() if planned.disk is not None else None,
        exclusive=job.gpu.exclusive,
        attempts=job.limits.attempts,
        grace_s=job.limits.grace_s,
        log_mib=job.limits.log_mib,
        module=WORKLOADS[job.workload].module,
        on=job.on.where,
        attempt_settings=(
            attempt_settings(job.settings.get("on_oom") or {})
            if is_command
            else [{}, *(fallback.settings for fallback in fallbacks)]
        ),
        fallbacks=[fallback.as_table() for fallback in fallbacks],
        skipped=[one.as_table() for one in skipped],
        last_resort=None if is_command else oom_advice(job),
        memory_limit_mib=job.limits.memory_mib,
        progress_regex=job.settings.get("progress_regex"),
        metric_regex=job.settings.get("metric_regex"),
        choices=[choice.as_table() for choice in planned.choices],
        environment=for_worker(planned.environment, os.environ),
        key=os.urandom(8).hex(),
    )


def _plan_of_gpu(planned: Planned) -> dict[str, Any]:
    """The parts of a plan that depend on the GPU."""
    fallbacks, skipped = fallbacks_below(planned)
    return {
        "job": planned.job.as_table(),
        "profile": planned.job.profile,
        "reserved_mib": planned.reserved_mib,
        "predicted_mib": planned.predicted_mib,
        "forecast": planned.forecast(),
        "attempt_settings": [{}, *(fallback.settings for fallback in fallbacks)],
        "fallbacks": [fallback.as_table() for fallback in fallbacks],
        "skipped": [one.as_table() for one in skipped],
        "last_resort": oom_advice(planned.job),
        "choices": [choice.as_table() for choice in planned.choices],
        "environment": for_worker(planned.environment, os.environ),
    }


@contextmanager
def _new_folder(
    home: Home, name: str, job: Job, plan: Plan, private: Private, environment: dict[str, Any]
) -> Iterator[None]:
    """Creates the run's folder atomically, by a rename. Removes it if the body fails: a refused job must not be found
    and started later."""
    making, made = RunFolder(home.runs / f".new-{name}"), home.runs / name
    try:
        _fill_folder(making, job, plan, private, environment)
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


def _fill_folder(
    making: RunFolder, job: Job, plan: Plan, private: Private, environment: dict[str, Any]
) -> None:
    for folder in (making.path, making.attempts, making.results):
        folder.mkdir(mode=0o700)
    write_durably(making.job, job.as_toml().encode())
    write_json(making.environment, environment)
    write_plan(making, plan, private)
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


def as_recorded(job: Job) -> Job:
    """The job as it would be recorded if started from here."""
    if WORKLOADS[job.workload].module is not None:
        return job
    shown = masked_arguments(job.settings["command"])
    return _masked(job, shown, Path(job.settings["cwd"] or ".").absolute())


def _masked(job: Job, shown: list[str], cwd: Path) -> Job:
    """The job to record. A command keeps its working folder: `--again` runs it there."""
    if "command" not in job.settings:
        return job
    return replace(job, settings={**job.settings, "command": shown, "cwd": masked_text(str(cwd))})


def resume(
    home: Home,
    conn: Connection,
    number: int,
    say: Callable[[str], None] = lambda text: None,
    *,
    token: str | None = None,
) -> None:
    """Resumes an ended run with a new attempt, from its last checkpoint if there is one; with one `token` once, unless
    it was stopped since."""
    if _was_resumed(conn, number, token):
        return
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
        if _was_resumed(conn, number, token):
            return
        run = runs.get(conn, number)  # it may have been deleted or resumed before we had the lock
        if run is None or not folder.path.is_dir():
            raise NoSuchRun(f"there is no run {number}: it was just deleted")
        plan = recorded_plan(conn, folder, number)
        _must_be_repeatable(plan)
        with pending.announce(home, run.folder, "resume"):
            _reopen(conn, folder, plan, token)
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


def _was_resumed(conn: Connection, number: int, token: str | None) -> bool:
    """Whether the token is that of its last resumption, and nobody stopped it since: then it is to go on again."""
    if token is None or runs.started_as(conn, token) != number:
        return False
    run = runs.get(conn, number)
    return run is not None and run.state != "cancelled"


def _reopen(conn: Connection, folder: RunFolder, plan: Plan, token: str | None) -> None:
    """If we are killed in here, the marker makes settle.py tidy up."""
    write_plan(folder, plan, Private(plan.command, dict(os.environ), guard_files(), plan.cwd))
    run_folder.reserve(folder.stop)  # empty: no stop request
    run_folder.reserve(folder.outcome)  # empty: not ended
    if not runs.reopen(conn, plan.number, token):
        raise Usage(f"run {plan.number} was just resumed by another process")


def _must_be_repeatable(plan: Plan) -> None:
    if is_masked([*plan.command, plan.cwd]):
        raise Usage(
            f"run {plan.number} was started with a secret in its arguments, which was not recorded",
            "start a new run with the secret in the environment",
        )
