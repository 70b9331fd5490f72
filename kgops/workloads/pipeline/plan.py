"""What planning asks of a pipeline: its stages, each planned by its own workload, and its applied options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice
from kgops.workloads.graphs.counts import Counts, lines_of
from kgops.workloads.pipeline.job import (
    combined_option,
    predict_settings,
    traces_predictions,
    tracin_options,
    tracin_settings,
    train_options,
    train_settings,
)
from kgops.workloads.plan import Count, Fallbacks, Options, Shape, Stage
from kgops.workloads.predict import plan as predict
from kgops.workloads.tracin import plan as tracin
from kgops.workloads.tracin.job import single_device_reason
from kgops.workloads.tracin.job import tracin_options as applied_in_tracin
from kgops.workloads.tracin.sizes import tests_of
from kgops.workloads.train import plan as train
from kgops.workloads.train.job import training_options
from kgops.workloads.train.models import model_of_settings

_MADE = "results/checkpoints", "results/best_model.pt"  # by the training, for the stages after it


def stages(job: Job, count: Count) -> list[Stage] | str:
    settings = train_settings(job.settings)
    trained = train.stages(replace(job, workload="train", settings=settings), count)
    if isinstance(trained, str):
        return trained
    counts = trained[0].counts
    model = model_of_settings(settings, counts.entities, counts.relations)
    trace = tracin_settings(job.settings, *_MADE)
    every = settings["checkpoint_frequency"]
    kept = settings["num_epochs"] // every if every else 0
    checkpoints = max(1, min(kept, trace["last_checkpoints"] or kept))
    found, tests = [*trained], tests_of(trace, counts)
    asked = predict_settings(job.settings, *_MADE)
    if asked is not None:
        stage = predict.stage_of(replace(job, workload="predict", settings=asked), counts, model)
        found.append(_with_options(stage, lambda options: {}))
        if traces_predictions(job.settings):
            answers = asked["best"] or lines_of(asked["queries"]) * asked["top_k"]
            tests = min(answers, trace["max_triples"] or answers)
    traced = replace(job, workload="tracin", settings=trace)
    stage = tracin.stage_of(traced, counts, model, {**settings, **job.options}, checkpoints, tests)
    return [*found, _with_options(stage, lambda options: tracin_options(job.settings, options))]


def _with_options(stage: Stage, chosen: Any) -> Stage:
    """The stage with its part of the job's options."""

    def shape(options: Options, gpu: GpuFacts | None, counts: Counts) -> Shape | None:
        return stage.shape(chosen(options), gpu, counts)

    return replace(stage, shape=shape)


def fallbacks(job: Job, gpu: GpuFacts | None) -> list[Fallbacks]:
    """Answers take a small part of the memory."""
    traced = tracin.fallbacks_of(job, tracin_settings(job.settings, *_MADE), gpu)
    return [*train.fallbacks_of(job, train_settings(job.settings), gpu), *traced]


def applied(job: Job, device: WorkerDevice, processes: tuple[int | None, str | None]) -> Iterator[Applied]:
    """As the worker reports it: the values of both stages for each option."""
    training_only = train_options(job.options)
    training = replace(job, workload="train", settings=train_settings(job.settings), options=training_only)
    settings = tracin_settings(job.settings, *_MADE)
    options = tracin_options(job.settings, job.options)
    traced = replace(job, workload="tracin", settings=settings, options=options)
    found = {option.option: option for option in training_options(training, device)}
    why = single_device_reason(settings)
    shared = (1, why) if why is not None and job.options.get("devices", 1) != 1 else processes
    for option in applied_in_tracin(traced, device, *shared):
        if option.option == "gradient_checkpointing" and option.option not in options:
            continue  # training has reported it
        in_training = found.get(option.option)
        combined = in_training and combined_option(in_training, option)
        found[option.option] = option if combined is None else Applied(option.option, *combined)
    yield from found.values()
