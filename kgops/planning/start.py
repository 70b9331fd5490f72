"""Checks a job, plans it and starts its run."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from kgops.errors import Usage, WontFit
from kgops.gpus.facts import cuda_problem
from kgops.gpus.readings import GpuReading, usable
from kgops.jobs.bundled import bundled_folder, class_names
from kgops.jobs.job import Job
from kgops.jobs.run_options import WantedGpus
from kgops.jobs.secrets import is_masked, masked_arguments, masked_text
from kgops.jobs.text import attempt_settings, fill_in
from kgops.planning.oom_fallbacks import Fallback, oom_advice, oom_fallbacks
from kgops.planning.plan_job import Planned
from kgops.planning.resolve import (
    device_of,
    for_worker,
    named_gpus,
    numbered_gpu,
    requested_gpu,
    requires_gpu,
)
from kgops.planning.worth_an_attempt import Skipped, worth_an_attempt
from kgops.settings import Home, guard_files
from kgops.supervisor.environment import describe_environment
from kgops.supervisor.gpu_room import usable_mib
from kgops.supervisor.launch import Accepted, accept
from kgops.supervisor.plan_file import Plan, Private
from kgops.supervisor.worker_reports import data_digests
from kgops.workloads.graphs.names import check_names
from kgops.workloads.outputs import must_be_free
from kgops.workloads.registry import WORKLOADS, named_paths
from storage.database import Connection


def must_be_possible(job: Job, *, on_gpu: bool = False) -> Path:
    """The job's working folder. Raises Usage or WontFit if the job cannot start on this machine. `on_gpu`: it is
    planned for a GPU, asked for or not."""
    cwd = _working_folder(job)
    if WORKLOADS[job.workload].module is None:
        _must_be_startable(commands_of(job)[0][0], cwd)
    _must_have_inputs(job, cwd)
    _must_be_known_to_pykeen(job)
    check_names([*WORKLOADS[job.workload].stage_settings(job.settings).values()], cwd)
    _must_have_cluster(job)
    must_have_gpus(job)
    _must_have_any_gpu(job)
    _must_have_cuda_torch(job)
    _must_not_limit_a_gpu(job, on_gpu)
    return cwd


def commands_of(job: Job) -> tuple[list[str], list[str]]:
    """The command, and the command with secrets masked."""
    workload = WORKLOADS[job.workload]
    if workload.module is not None:
        command = [sys.executable, "-P", "-m", workload.module]
        return command, command
    command = list(job.settings["command"])
    if is_masked(command):
        raise Usage(
            "this job's arguments contained a secret, which was not recorded: the job cannot be repeated as it is",
            "give the command again, with the secret in the environment",
        )
    return command, masked_arguments(command)


def _working_folder(job: Job) -> Path:
    cwd = Path(job.settings.get("cwd") or ".").absolute()
    if not cwd.is_dir():
        raise Usage(f"the working folder {cwd} does not exist")
    return cwd


def _must_be_startable(program: str, cwd: Path) -> None:
    """Refuses a misspelt command before a run is created."""
    path = shutil.which(cwd / program) if "/" in program else shutil.which(program)
    if path is None:
        raise Usage(f"program {program!r} not found", "check its name, or give its full path")


def _must_have_inputs(job: Job, cwd: Path) -> None:
    """Refuses a missing input before a run is created."""
    workload = WORKLOADS[job.workload]
    for key, value in named_paths(job):
        path = cwd / value
        if path.is_dir() if key in workload.folders else path.is_file():
            continue
        what = "folder" if key in workload.folders else "file"
        flag = f"--{key.rpartition('.')[2].replace('_', '-')}"
        named = flag if workload.has_flags else f"{job.workload}.{key}"
        raise Usage(f"{named}: there is no {what} {path}", "check the path")


def _must_be_known_to_pykeen(job: Job) -> None:
    """Refuses a misspelt dataset or model of PyKEEN's before a run is created."""
    for settings in (job.settings, *(one for one in job.settings.values() if isinstance(one, dict))):
        dataset = settings.get("dataset")
        if dataset and bundled_folder(dataset) is None:
            _must_be_class("dataset", dataset, "datasets", "`pykeen ls datasets` lists them")
        if settings.get("engine") == "pykeen" and settings["model"]:
            _must_be_class("model", settings["model"], "models", "`pykeen ls models` lists them")


def _must_be_class(what: str, name: str, kind: Literal["datasets", "models"], hint: str) -> None:
    known = {_plain(one): one for one in class_names(kind)}
    if not known or _plain(name) in known:
        return
    from importlib.metadata import (
        entry_points,
    )  # here: 10 ms, for misspelt names and other packages' datasets

    if any(_plain(one.name) == _plain(name) for one in entry_points(group=f"pykeen.{kind}")):
        return
    near = get_close_matches(_plain(name), known, n=1)
    meant = f"; did you mean {known[near[0]]}?" if near else ""
    raise Usage(f"PyKEEN has no {what} {name!r:.60}{meant}", hint)


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


def _must_have_cluster(job: Job) -> None:
    """Refuses a job for a cluster that cannot be reached, before a run is created."""
    if job.on.where is None:
        return
    if WORKLOADS[job.workload].module is None:
        raise Usage(
            "--on is for kgops workloads, not for your own commands", "write an sbatch script, or omit --on"
        )
    if job.on.where == "slurm":
        if shutil.which("sbatch") is None:
            raise Usage(
                "sbatch not found on this machine", "start it on a login node of the cluster, or omit --on"
            )
        if job.gpu.wanted or job.gpu.memory_mib:
            raise Usage("--gpu and --gpu-memory are for GPUs of this machine", "ask Slurm: --gres gpu:1")


def must_have_gpus(job: Job) -> None:
    """Refuses a GPU that is missing, unused, or named in two ways: the job never falls back to another device."""
    _must_use_its_gpu(job)
    asked = named_gpus(job)
    if asked in (None, "auto") or job.on.where == "slurm":
        return
    gpus = _gpus_here()
    named = WantedGpus.read(asked).named or frozenset()
    absent = named.difference(name for gpu in gpus for name in gpu.names)
    if absent or not _selected(gpus, asked):
        raise Usage(
            f"this machine has no GPU {', '.join(sorted(absent)) or asked}",
            "`kgops gpus --json` lists them; a GPU that MIG divides runs nothing itself: name a slice by its UUID",
        )
    _must_name_one_gpu(job, gpus)


def _must_use_its_gpu(job: Job) -> None:
    """Refuses a request for a GPU next to `--device cpu`: the run would hold a GPU and not use it."""
    if device_of(job) == "cpu" and requested_gpu(job) is not None:
        flag = f"--gpu {job.gpu.wanted}" if job.gpu.wanted else f"--gpu-memory {job.gpu.memory_mib}"
        raise Usage(f"{flag} reserves a GPU that --device cpu leaves unused", "omit one of them")


def _must_name_one_gpu(job: Job, gpus: tuple[GpuReading, ...]) -> None:
    """Refuses `--gpu` next to a `device` that is another GPU."""
    number, wanted = numbered_gpu(job), job.gpu.wanted
    if number is None or wanted in (None, "auto"):
        return
    request = WantedGpus.read(wanted)
    is_one = request.count == 1 or (request.named is not None and len(request.named) == 1)
    if not is_one or not _selected(_selected(gpus, number), wanted):
        raise Usage(
            f"--gpu {wanted} and --device cuda:{number} name different GPUs",
            f"name it once: --gpu {wanted}, or --device cuda:{number}, which means GPU {number} of this machine",
        )


def _must_have_any_gpu(job: Job) -> None:
    """Refuses a reservation, or `--gpu auto`, on a machine without a GPU, or of more memory than any has."""
    asked = requested_gpu(job)
    if asked is None or job.on.where == "slurm":
        return
    gpus = _selected(_gpus_here(), asked)
    if not gpus:
        raise Usage("this machine has no GPU at all", "`kgops gpus --json` lists them")
    _must_have_memory(job, gpus)


def _gpus_here() -> tuple[GpuReading, ...]:
    from kgops.gpus.sampler import read_within

    read = read_within()
    if read.problem is not None:
        raise Usage(f"a GPU was requested, but none can be used: {read.problem.message}", read.problem.hint)
    return usable(read.gpus)


def _selected(gpus: Sequence[GpuReading], asked: str | None) -> list[GpuReading]:
    request = WantedGpus.read(asked)
    return [gpu for gpu in gpus if gpu.is_wanted(request)]


def _must_have_memory(job: Job, gpus: list[GpuReading]) -> None:
    """Refuses a reservation that is larger than the requested GPUs: the run would wait for ever."""
    needed = job.gpu.memory_mib
    sizes = [size for gpu in gpus if (size := usable_mib(gpu)) is not None]
    if needed is not None and sizes and needed > max(sizes):
        raise WontFit(
            f"--gpu-memory {needed} reserves {needed:,} MiB of a GPU; the largest here has {max(sizes):,} MiB",
            "reserve less; without --gpu-memory and with --exclusive a run has its GPU to itself",
        )


def _must_have_cuda_torch(job: Job) -> None:
    """Refuses a requested GPU if the installed torch cannot use it."""
    is_here = WORKLOADS[job.workload].module is not None and job.on.where is None
    if not is_here or not requires_gpu(job):
        return
    problem = cuda_problem()
    if problem is not None:
        raise Usage(
            f"a GPU was requested, but {problem.reason}",
            f"{problem.hint}, or run without --gpu, --gpu-memory and --device",
        )


def _must_not_limit_a_gpu(job: Job, on_gpu: bool) -> None:
    if job.limits.memory_mib is not None and (on_gpu or requires_gpu(job)):
        raise Usage(
            "--memory-limit is for runs on the CPU: a GPU driver maps more host memory than it uses",
            "omit --memory-limit, or add --device cpu"
            if not requires_gpu(job)
            else "omit --memory-limit, or --gpu, --gpu-memory and --device",
        )


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
    of_gpu = {name: value for name, value in _plan_of_gpu(planned).items() if name != "job"}
    if WORKLOADS[job.workload].module is None:
        of_gpu |= {
            "attempt_settings": attempt_settings(job.settings.get("on_oom") or {}),
            "last_resort": None,
        }
    return Plan(
        number=0,
        workload=job.workload,
        label=job.label,
        submitted_at=time.time(),
        command=shown,
        cwd=masked_text(str(cwd)),
        gpu_request=planned.gpu_request,
        process=planned.process,
        disk=planned.disk.as_table() if planned.disk is not None else None,
        exclusive=job.gpu.exclusive,
        attempts=job.limits.attempts,
        grace_s=job.limits.grace_s,
        log_mib=job.limits.log_mib,
        module=WORKLOADS[job.workload].module,
        on=job.on.where,
        memory_limit_mib=job.limits.memory_mib,
        progress_regex=job.settings.get("progress_regex"),
        metric_regex=job.settings.get("metric_regex"),
        key=os.urandom(8).hex(),
        **of_gpu,
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
