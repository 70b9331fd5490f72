"""Starts planned jobs: checks that a job can start here, and hands it with its plan to the supervisor."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kgops.jobs.job import Job
from kgops.jobs.secrets import masked_arguments, masked_text
from kgops.jobs.text import attempt_settings, fill_in
from kgops.planning.launch_checks import commands_of, must_be_possible
from kgops.planning.oom_fallbacks import Fallback, oom_advice, oom_fallbacks
from kgops.planning.plan_job import Planned
from kgops.planning.resolve import for_worker
from kgops.planning.worth_an_attempt import Skipped, worth_an_attempt
from kgops.settings import Home, guard_files
from kgops.supervisor.environment import describe_environment
from kgops.supervisor.launch import Accepted, accept
from kgops.supervisor.plan_file import Plan, Private
from kgops.supervisor.worker_reports import data_digests
from kgops.workloads.outputs import must_be_free
from kgops.workloads.registry import WORKLOADS
from storage.database import Connection


def launch(
    home: Home,
    conn: Connection,
    planned: Planned,
    say: Callable[[str], None] = lambda text: None,
    *,
    each: Sequence[Planned] = (),
    forced: bool = False,
    repeats: int | None = None,
) -> int:
    """Starts or queues a run of the job and returns its number.

    `each`: the plans per GPU, where GPUs differ; the GPU it gets decides. `say` gets the reason if an accepted run
    cannot start at once.
    A `forced` run's workers do what they would refuse without it, also after a resume, and may replace output files.
    A worker notes what has changed in the data since the run that it `repeats`.
    """
    job = planned.job
    command, masked_command = commands_of(job)
    cwd = must_be_possible(job, on_gpu=planned.target.on_gpu)
    must_be_free(job, cwd, force=forced)
    plan = replace(
        _plan(planned, masked_command, cwd),
        by_gpu={uuid: _plan_of_gpu(gpu_plan) for gpu_plan in each for uuid in gpu_plan.uuids},
        forced=forced,
        data_before=None if repeats is None else {"run": repeats, "digests": data_digests(conn, repeats)},
    )
    accepted = Accepted(
        _masked(job, masked_command, cwd),
        plan,
        Private(command, dict(os.environ), guard_files(), str(cwd)),
        describe_environment(for_worker(planned.environment, os.environ)),
    )
    return accept(home, conn, accepted, say)


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


def _plan(planned: Planned, shown: list[str], cwd: Path) -> Plan:
    """Without the number, which the supervisor gives."""
    job = planned.job
    fallbacks, skipped = fallbacks_below(planned)
    is_command = WORKLOADS[job.workload].module is None
    return Plan(
        number=0,
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
