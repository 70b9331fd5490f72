"""Applied options of a plan: values that the worker will report, `auto` and defaults included."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import WorkerDevice, cpu_processes
from kgops.planning.resolve import Choice
from kgops.workloads.number_formats import device_for
from kgops.workloads.plan import plan_of
from kgops.workloads.registry import OPTIONS, devices_of, workload_of

BY_DEFAULT = "default"


def as_applied(
    job: Job, choices: Iterable[Choice], gpu: GpuFacts | None, *, gpus: int | None
) -> tuple[Choice, ...]:
    """A plan's choices for this GPU (None: the CPU) with the values that the worker will report, defaults included.
    `gpus`: number of GPUs of `devices = "all"`; None: unknown."""
    chosen = {choice.option: choice for choice in choices}
    device = device_for(gpu)
    if workload_of(job).is_command or job.on.where == "slurm" or device is None:
        return tuple(chosen.values())
    for applied in plan_of(job.workload).applied(job, device, _processes(job, device, gpus)):
        choice = chosen.get(applied.option) or Choice(applied.option, None, None, BY_DEFAULT)
        reasons = dict.fromkeys(filter(None, (choice.reason, applied.reason)))
        value = _job_value(applied.option, applied.value)
        chosen[applied.option] = replace(choice, applied=value, reason="; ".join(reasons) or None)
    return tuple(chosen.values())


def _job_value(option: str, value: Any) -> Any:
    """The value as a job file spells it: on and off are true and false for boolean options."""
    switched = {"on": True, "off": False}.get(value) if isinstance(value, str) else None
    return switched if any(switched is one for one in OPTIONS[option].choices if one is not None) else value


def _processes(job: Job, device: WorkerDevice, gpus: int | None) -> tuple[int | None, str | None]:
    devices = devices_of(job)
    if device.kind == "cpu":
        return cpu_processes(devices)
    if devices == "all":
        return gpus, None
    return (devices if isinstance(devices, int) else devices.count(",") + 1), None
