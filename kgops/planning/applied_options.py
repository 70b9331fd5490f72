"""A plan's options as the worker will apply them: what `auto` comes to, and what nobody set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs import on_device
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, Place
from kgops.jobs.options import OPTIONS
from kgops.jobs.pipeline import TRACED, tracin_settings, train_options, train_settings
from kgops.planning.job_size import traces_conve
from kgops.planning.number_formats import place_of
from kgops.planning.resolve import Choice

__all__ = ["BY_DEFAULT", "as_applied"]

BY_DEFAULT = "default"


def as_applied(
    job: Job, choices: Iterable[Choice], gpu: GpuFacts | None, *, gpus: int | None
) -> tuple[Choice, ...]:
    """The choices of a plan for this GPU (None: the CPU), each with the value that the worker will report, and those
    that nobody made. `gpus` are the GPUs that `devices = "all"` comes to; None: nobody knows."""
    chosen = {choice.option: choice for choice in choices}
    place = place_of(gpu)
    if job.workload == "exec" or job.on.where == "slurm" or place is None:
        return tuple(chosen.values())
    for one in _of(job, place, _processes(job, place, gpus)):
        choice = chosen.get(one.option) or Choice(one.option, None, None, BY_DEFAULT)
        reasons = dict.fromkeys(filter(None, (choice.reason, one.reason)))
        value = _as_set(one.option, one.value)
        chosen[one.option] = replace(choice, applied=value, reason="; ".join(reasons) or None)
    return tuple(chosen.values())


def _as_set(option: str, value: Any) -> Any:
    """As a job file says it: what workers call on and off is true and false where the option is a switch."""
    switched = {"on": True, "off": False}.get(value) if isinstance(value, str) else None
    return switched if any(switched is one for one in OPTIONS[option].values if one is not None) else value


def _of(job: Job, place: Place, processes: tuple[int | None, str | None]) -> Iterator[Applied]:
    if job.workload == "regress":
        yield from on_device.of_regression(job, place)
    elif job.workload == "pipeline":
        yield from _of_pipeline(job, place, processes)
    elif job.workload == "tracin":
        yield from _of_tracing(job, place, processes)
    elif job.settings["engine"] == "kgops":
        yield from on_device.of_training(job, place, *processes)
    else:
        yield from on_device.of_pykeen(job, place)


def _of_tracing(job: Job, place: Place, processes: tuple[int | None, str | None]) -> Iterator[Applied]:
    why = on_device.alone_in_tracing(job.settings)
    if why is not None and job.options.get("devices", 1) != 1:
        processes = 1, why
    yield from on_device.of_tracing(job, place, *processes, factored=traces_conve(job))


def _of_pipeline(job: Job, place: Place, processes: tuple[int | None, str | None]) -> Iterator[Applied]:
    """As the worker tells it: what the two stages make of one option, beside each other."""
    own = train_options(job.options)
    training = replace(job, workload="train", settings=train_settings(job.settings), options=own)
    settings = tracin_settings(job.settings, "results/checkpoints", "results/best_model.pt")
    options = {name: value for name, value in job.options.items() if name in TRACED}
    tracing = replace(job, workload="tracin", settings=settings, options=options)
    found = {one.option: one for one in on_device.of_training(training, place, *processes)}
    why = on_device.alone_in_tracing(settings)
    then_on = (1, why) if why is not None and job.options.get("devices", 1) != 1 else processes
    for one in on_device.of_tracing(tracing, place, *then_on):
        if one.option == "gradient_checkpointing" and one.option not in options:
            continue  # the training has spoken of it
        first = found.get(one.option)
        both = first and on_device.one_after_the_other(first, one)
        found[one.option] = one if both is None else Applied(one.option, *both)
    yield from found.values()


def _processes(job: Job, place: Place, gpus: int | None) -> tuple[int | None, str | None]:
    asked = job.options.get("devices", 1)
    if place.kind == "cpu":
        return on_device.processes_on_cpu(asked)
    if asked == "all":
        return gpus, None
    return (asked if isinstance(asked, int) else asked.count(",") + 1), None
