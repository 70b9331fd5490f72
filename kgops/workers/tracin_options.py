"""The options of a TracIn run: what was asked, what came of it, and why; none is dropped in silence."""

from __future__ import annotations

from collections.abc import Collection

import torch

from kgops.jobs.job import Job
from kgops.jobs.on_device import product_precision, single_device_reason, tracin_options
from kgops.models.conve import ConvE
from kgops.tracin.blocks import Settings
from kgops.tracin.layers import chosen_parameters, last_layers
from kgops.training.precision import place_of
from kgops.workers.devices import devices_for
from kgops.workers.report import Reporter, tell_applied

__all__ = ["chosen_names", "filters", "report_options", "scoring_settings", "spread_over", "tests_at_once"]

_FORMATS = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def filters(job: Job) -> bool:
    """Whether each test triple is scored on its neighbourhood alone; a batch is, unless told otherwise."""
    return bool(job.options.get("filtering", bool(job.settings["test_triples"])))


def scoring_settings(
    job: Job, both_directions: bool, model: torch.nn.Module, device: torch.device
) -> Settings:
    factored = isinstance(model, ConvE)
    chunk = job.options.get("entity_chunk", "auto")
    plain = Settings()
    asked = product_precision(job.options.get("precision", "fp32"), place_of(device))
    return Settings(
        block=job.options.get("block", plain.block),
        chunk=plain.chunk if chunk == "auto" else chunk,
        tests_at_once=tests_at_once(job),
        both_directions=both_directions,
        projection_dim=job.settings["projection_dim"],
        seed=job.settings["seed"],
        gram_dtype=_FORMATS[job.options.get("gram_precision", "fp32")] if factored else None,
        precision=_FORMATS[asked[0]] if factored else None,
    )


def tests_at_once(job: Job) -> int | None:
    """None: as many as fit beside each other in a fixed share of memory."""
    asked = job.options.get("tests_at_once", "auto")
    return None if asked == "auto" else int(asked)


def spread_over(job: Job, device: torch.device) -> tuple[list[str], str | None]:
    """The devices of the processes that share the work, one for each, and why they are not what was asked."""
    asked, alone = job.options.get("devices", 1), [str(device)]
    if asked == 1:
        return alone, None
    why = single_device_reason(job.settings)
    return (alone, why) if why else devices_for(asked, device)


def chosen_names(job: Job, model: torch.nn.Module) -> Collection[str] | None:
    """The parameters that take part; None: all of them."""
    if job.settings["layers"]:
        return chosen_parameters(model, job.settings["layers"])
    count = job.options.get("last_layers", False)
    return last_layers(model, count) if count else None


def report_options(
    job: Job, device: torch.device, report: Reporter, model: torch.nn.Module | None = None
) -> None:
    """Without a model, where the run only filters."""
    devices, why = spread_over(job, device)
    found = tracin_options(
        job, place_of(device), len(devices), why, factored=model is None or isinstance(model, ConvE)
    )
    # Within a pipeline the training has spoken of it.
    spoken_of = {"memory_cleanup", *({"gradient_checkpointing"} if report.earlier else ())}
    tell_applied(job, found, report, spoken_of - job.options.keys() | {"memory_cleanup"})
