"""Applied options of a plan: values that the worker will report, `auto` and defaults included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs import on_device
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice
from kgops.planning.job_size import is_kgops_conve
from kgops.planning.resolve import Choice
from kgops.workloads.catalog import OPTIONS
from kgops.workloads.explain import applied as explain_applied
from kgops.workloads.number_formats import device_for
from kgops.workloads.pipeline import applied as pipeline_applied
from kgops.workloads.pipeline.job import tracin_options, tracin_settings, train_options, train_settings
from kgops.workloads.predict import applied as predict_applied
from kgops.workloads.registry import devices_of
from kgops.workloads.regress import applied as regress_applied
from kgops.workloads.tracin import applied as tracin_applied
from kgops.workloads.train import applied as train_applied

BY_DEFAULT = "default"


def as_applied(
    job: Job, choices: Iterable[Choice], gpu: GpuFacts | None, *, gpus: int | None
) -> tuple[Choice, ...]:
    """A plan's choices for this GPU (None: the CPU) with the values that the worker will report, defaults included.
    `gpus`: number of GPUs of `devices = "all"`; None: unknown."""
    chosen = {choice.option: choice for choice in choices}
    device = device_for(gpu)
    if job.workload == "exec" or job.on.where == "slurm" or device is None:
        return tuple(chosen.values())
    for applied in _applied_options(job, device, _processes(job, device, gpus)):
        choice = chosen.get(applied.option) or Choice(applied.option, None, None, BY_DEFAULT)
        reasons = dict.fromkeys(filter(None, (choice.reason, applied.reason)))
        value = _job_value(applied.option, applied.value)
        chosen[applied.option] = replace(choice, applied=value, reason="; ".join(reasons) or None)
    return tuple(chosen.values())


def _job_value(option: str, value: Any) -> Any:
    """The value as a job file spells it: on and off are true and false for boolean options."""
    switched = {"on": True, "off": False}.get(value) if isinstance(value, str) else None
    return switched if any(switched is one for one in OPTIONS[option].choices if one is not None) else value


def _applied_options(
    job: Job, device: WorkerDevice, processes: tuple[int | None, str | None]
) -> Iterator[Applied]:
    if job.workload == "regress":
        yield from regress_applied.regression_options(job, device)
    elif job.workload == "pipeline":
        yield from _pipeline_options(job, device, processes)
    elif job.workload == "predict":
        yield from predict_applied.predict_options(job, device)
    elif job.workload == "explain":
        yield from explain_applied.explain_options(job, device)
    elif job.workload == "tracin":
        yield from _tracin_options(job, device, processes)
    elif job.settings["engine"] == "kgops":
        yield from train_applied.training_options(job, device)
    else:
        yield from train_applied.pykeen_options(job, device)


def _tracin_options(
    job: Job, device: WorkerDevice, processes: tuple[int | None, str | None]
) -> Iterator[Applied]:
    why = tracin_applied.single_device_reason(job.settings)
    if why is not None and devices_of(job) != 1:
        processes = 1, why
    yield from tracin_applied.tracin_options(job, device, *processes, factored=is_kgops_conve(job))


def _pipeline_options(
    job: Job, device: WorkerDevice, processes: tuple[int | None, str | None]
) -> Iterator[Applied]:
    """As the worker reports it: the values of both stages for each option."""
    training_only = train_options(job.options)
    training = replace(job, workload="train", settings=train_settings(job.settings), options=training_only)
    settings = tracin_settings(job.settings, "results/checkpoints", "results/best_model.pt")
    options = tracin_options(job.settings, job.options)
    tracin = replace(job, workload="tracin", settings=settings, options=options)
    applied = {option.option: option for option in train_applied.training_options(training, device)}
    why = tracin_applied.single_device_reason(settings)
    tracin_processes = (1, why) if why is not None and devices_of(job) != 1 else processes
    for option in tracin_applied.tracin_options(tracin, device, *tracin_processes):
        if option.option == "gradient_checkpointing" and option.option not in options:
            continue  # training has reported it
        in_training = applied.get(option.option)
        combined = in_training and pipeline_applied.combined_option(in_training, option)
        applied[option.option] = option if combined is None else Applied(option.option, *combined)
    yield from applied.values()


def _processes(job: Job, device: WorkerDevice, gpus: int | None) -> tuple[int | None, str | None]:
    devices = devices_of(job)
    if device.kind == "cpu":
        return on_device.cpu_processes(devices)
    if devices == "all":
        return gpus, None
    return (devices if isinstance(devices, int) else devices.count(",") + 1), None
