"""Resolves and reports the options of a TracIn run."""

from __future__ import annotations

from collections.abc import Collection

import torch

from kgops.jobs.job import Job
from kgops.jobs.on_device import gram_precision, product_precision
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import Settings
from kgops.maths.tracin.curvature import Training
from kgops.maths.tracin.models import chosen_parameters, last_layers
from kgops.maths.train.settings import place_of
from kgops.maths.worker.devices import devices_for
from kgops.maths.worker.report import Reporter, report_applied
from kgops.workloads.tracin.job import single_device_reason, tracin_options

_FORMATS = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def filters(job: Job) -> bool:
    """Whether each test triple is scored on its neighbourhood alone; the default for a batch."""
    return bool(job.options.get("filtering", bool(job.settings["test_triples"])))


def scoring_settings(
    job: Job,
    both_directions: bool,
    model: torch.nn.Module,
    device: torch.device,
    training: Training | None = None,
) -> Settings:
    factored = isinstance(model, ConvE)
    chunk = job.options.get("entity_chunk", "auto")
    plain = Settings()
    place = place_of(device)
    precision, _ = product_precision(job.options.get("precision", "fp32"), place)
    gram, _ = gram_precision(job.options.get("gram_precision", "fp32"), place)
    return Settings(
        block=job.options.get("block", plain.block),
        chunk=plain.chunk if chunk == "auto" else chunk,
        tests_at_once=tests_at_once(job),
        both_directions=both_directions,
        projection_dim=job.settings["projection_dim"],
        seed=job.settings["seed"],
        gram_dtype=_FORMATS[gram] if factored else None,
        precision=_FORMATS[precision] if factored else None,
        score=job.settings["score"],
        training=training,
    )


def tests_at_once(job: Job) -> int | None:
    """None: as many as fit in a fixed share of memory."""
    requested = job.options.get("tests_at_once", "auto")
    return None if requested == "auto" else int(requested)


def spread_over(job: Job, device: torch.device) -> tuple[list[str], str | None]:
    """One device for each process that shares the work, and why they differ from the request."""
    requested, alone = job.options.get("devices", 1), [str(device)]
    if requested == 1:
        return alone, None
    why = single_device_reason(job.settings)
    return (alone, why) if why else devices_for(requested, device)


def chosen_names(job: Job, model: torch.nn.Module) -> Collection[str] | None:
    """The parameters whose gradients count; None: all."""
    if job.settings["layers"]:
        return chosen_parameters(model, job.settings["layers"])
    count = job.options.get("last_layers", False)
    return last_layers(model, count) if count else None


def report_options(
    job: Job, device: torch.device, report: Reporter, model: torch.nn.Module | None = None
) -> None:
    """Reports the options; `model` is None if the run only filters."""
    devices, why = spread_over(job, device)
    applied = tracin_options(
        job, place_of(device), len(devices), why, factored=model is None or isinstance(model, ConvE)
    )
    # In a pipeline the training has reported it.
    spoken_of = {"memory_cleanup", *({"gradient_checkpointing"} if report.earlier else ())}
    report_applied(job, applied, report, spoken_of - job.options.keys() | {"memory_cleanup"})
